"""What every family of faults is made of: a kind as the schedule knows it, and what it does to a world."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["Act", "CannotStrike", "End", "FaultKind", "dead", "within"]

End = Callable[[], None]
"""Ends a fault, and does what an operator would do then; returns when that is done."""
Act = Callable[["World", random.Random], "End | None"]
"""Begins a fault; what it returns is called when the fault's time is over, None for what happens at a moment."""


class CannotStrike(Exception):
    """There is nothing to hit just now (no worker is alive, the disk is full already …): counted as not struck, no failure."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind and its act. The act's docstring is its line in the catalogue."""

    kind: Kind
    act: Act


def within(context: AbstractContextManager[object], begin: Callable[[], End]) -> End:
    """Begin a fault in a context that is left when the fault has ended, or at once if it cannot begin."""
    with ExitStack() as stack:
        stack.enter_context(context)
        begun = begin()
        entered = stack.pop_all()

    def end() -> None:
        with entered:
            begun()

    return end


@contextmanager
def dead(world: "World") -> Iterator[None]:
    """Have all receivers dead by -9, with their tasks."""
    with ExitStack() as stack:
        for receiver in world.receivers:
            stack.enter_context(receiver.held())
            receiver.process.kill()
        stack.enter_context(world.locked())
        yield
