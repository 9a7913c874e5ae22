"""Faults of clocks: stepped forward or back for a while, by much or little, and set right again.

A program's clock is what it reads (`tests.chaos.shim`): times of files stay true, so that they look as much older or younger.
"""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.program import Program
    from tests.chaos.world import World

__all__ = ["KINDS"]

_SHIM = frozenset({"shim"})
_HOUR, _DAY = 3600.0, 86400.0
_STEPS = (0.5, 30.0, _HOUR, 5 * _HOUR, _DAY, 40 * _DAY)  # seconds


def _step(whom: str, pick: Callable[["World", random.Random], Sequence["Program"]]) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Step the clock of programs forward or back, and set it right."""
        controls = [world.control(program) for program in pick(world, chance)]
        seconds = chance.choice(_STEPS) * chance.choice((1, -1))
        for control in controls:
            control.step(seconds)

        def end() -> None:
            for control in controls:
                control.step(0)

        return end

    act.__doc__ = f"Step the clock of a {whom} by half a second to 40 days, then back."
    return act


def _shipper(world: "World", chance: random.Random) -> Sequence["Program"]:
    if not world.shippers:
        raise CannotStrike("there are no shippers")
    return [chance.choice(world.shippers)]


def _receivers(world: "World", chance: random.Random) -> Sequence["Program"]:
    return [*world.receivers, *world.spark_programs]


def _logbroker(world: "World", chance: random.Random) -> Sequence["Program"]:
    return [chance.choice(world.brokers).program]


_VICTIMS = {"shipper": _shipper, "receiver": _receivers, "logbroker": _logbroker}

KINDS = tuple(
    FaultKind(Kind(f"clock-{name}", lasts=(1.0, 15.0), needs=_SHIM), _step(name, pick))
    for name, pick in _VICTIMS.items()
)
