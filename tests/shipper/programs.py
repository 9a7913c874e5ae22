"""Random programs for the model tests: how they are drawn, how many are run, and how a failing one is run again.

In CI the same programs are drawn every time. `LOGSHIP_PROGRAMS=5000` draws that many others; hypothesis
prints the shortest one that fails.
"""

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

__all__ = ["STEP", "Step", "as_many_as", "programs"]

Step = tuple[str, int]
"""What happens, and how much of it, from 0 to 4."""

STEP = 50_000_000
"""Nanoseconds between two steps, also as the files' times show it: rotations come apart by more than a clock's tick."""

LONGEST = 50

Test = TypeVar("Test", bound=Callable[..., None])


def programs(actions: Mapping[str, int]) -> st.SearchStrategy[list[Step]]:
    """Draw programs of up to 50 steps; `actions` says how often which comes."""
    names = [name for name, weight in actions.items() for _ in range(weight)]
    step = st.tuples(st.sampled_from(names), st.integers(0, 4))
    # lists of a drawn length: left to themselves they are mostly short
    return st.integers(0, LONGEST).flatmap(lambda n: st.lists(step, min_size=n, max_size=n))


def as_many_as(count: int, together: int = 1) -> Callable[[Test], Test]:
    """Run a test on `count` programs, `together` at a time, or on as many others as LOGSHIP_PROGRAMS says."""
    asked = os.environ.get("LOGSHIP_PROGRAMS")
    return settings(
        max_examples=max(1, int(asked or count) // together),
        derandomize=asked is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
