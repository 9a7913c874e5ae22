"""Faults of clocks: stepped forward or back for a while, by much or little, and set right again.

A program's clock is what it reads (`tests.chaos.shim`): times of files stay true, so that they look as much older or younger.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, Chance, End, Family, one_that_runs

if TYPE_CHECKING:
    from tests.chaos.program import Program
    from tests.chaos.world import World

__all__ = ["FAMILY"]

FAMILY = Family()
_STEPS = (0.5, 30.0, 3600.0, 5 * 3600.0, 86400.0, 40 * 86400.0)  # seconds


def _step(pick: "Callable[[World, Chance], list[Program]]") -> Act:
    def act(world: "World", chance: Chance) -> End:
        controls = [world.control(program) for program in pick(world, chance)]
        seconds = chance.choice(_STEPS) * chance.choice((1, -1))

        def step(by: float) -> None:
            for control in controls:
                control.step(by)

        step(seconds)
        return lambda: step(0)

    return act


for _name, _pick in {
    "shipper": lambda world, chance: [one_that_runs(world.shippers, chance)],
    "receiver": lambda world, _: [*world.receivers, *world.spark_programs],
    "logbroker": lambda world, chance: [chance.choice(world.broker_programs)],
}.items():
    _words = f"Step the clock of a {_name} by half a second to 40 days, then back."
    FAMILY.add(f"clock-{_name}", _step(_pick), (1.0, 15.0), "shim", words=_words)
