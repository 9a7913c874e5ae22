"""Draws random programs for the model tests.

CI runs the same programs every time. `LOGSHIP_PROGRAMS=5000` draws that many others.
"""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

Step = tuple[str, int]
"""An action, and its amount, by default from 0 to 4."""

STEP = 50_000_000
"""Nanoseconds between two steps, also in the files' times: more than a tick of the clock."""

LONGEST = 50

Test = TypeVar("Test", bound=Callable[..., None])


def programs(
    actions: Mapping[str, int], most: Mapping[str, int] = MappingProxyType({})
) -> st.SearchStrategy[list[Step]]:
    """Draw programs of up to 50 steps; `actions` are weights, `most` largest amounts if not 4."""
    steps = [_steps(name, most.get(name, 4)) for name, n in actions.items() for _ in range(n)]
    step = st.integers(0, len(steps) - 1).flatmap(steps.__getitem__)
    # lists of a drawn length: left to themselves they are mostly short
    return st.integers(0, LONGEST).flatmap(lambda n: st.lists(step, min_size=n, max_size=n))


def _steps(name: str, most: int) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.integers(0, most))


def as_many_as(count: int, together: int = 1) -> Callable[[Test], Test]:
    """Run a test on `count` programs, or LOGSHIP_PROGRAMS others, `together` at a time.

    Programs that run together are not shortened, which would take hours: the test reports the one
    that failed.
    """
    asked = os.environ.get("LOGSHIP_PROGRAMS")
    shortened = (Phase.shrink,) if together == 1 else ()
    return settings(
        max_examples=max(1, int(asked or count) // together),
        derandomize=asked is None,
        phases=(Phase.explicit, Phase.generate, *shortened),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
