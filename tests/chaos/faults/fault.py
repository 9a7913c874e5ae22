"""What a fault is: a kind, whose act begins it and returns what ends it. Families of kinds are gathered by `Family`."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.chaos.schedule import MOMENT, Act, End, FaultKind, Lasts

if TYPE_CHECKING:
    from tests.chaos.program import Program
    from tests.chaos.world import World

__all__ = [
    "Act",
    "CannotStrike",
    "Chance",
    "End",
    "Family",
    "dead",
    "held",
    "one_that_runs",
    "together",
    "within",
]

Chance = random.Random


class CannotStrike(Exception):
    """There is nothing to hit just now (no worker is alive, the disk is full already …): counted as not struck, no failure."""


class Family:
    """The kinds of one family; the name of a kind is that of its act unless it is given."""

    def __init__(self) -> None:
        self.kinds: list[FaultKind] = []

    def add(
        self,
        name: str,
        act: Act,
        lasts: Lasts = MOMENT,
        *needs: str,
        words: str = "",
        weight: float = 1.0,
        destroys: bool = False,
    ) -> None:
        """Add a kind; `words` say what it does, the first line of the act's docstring if not given."""
        said = words or (act.__doc__ or "").partition("\n")[0]
        self.kinds.append(FaultKind(name, act, said, lasts, weight, frozenset(needs), destroys))

    def kind(
        self, lasts: Lasts = MOMENT, *needs: str, weight: float = 1.0, destroys: bool = False
    ) -> Callable[[Act], Act]:
        """Add the decorated act as a kind of its name."""

        def added(act: Act) -> Act:
            name = act.__name__.strip("_").replace("_", "-")
            self.add(name, act, lasts, *needs, weight=weight, destroys=destroys)
            return act

        return added


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


def together(ends: Iterable[End]) -> End:
    """Return one end of several faults that have begun."""
    begun = list(ends)

    def end() -> None:
        for each in begun:
            each()

    return end


@contextmanager
def held(programs: "Iterable[Program]", *, kill: bool = False) -> "Iterator[None]":
    """Leave programs dead that die, or kill them."""
    with ExitStack() as stack:
        for program in programs:
            stack.enter_context(program.held())
            if kill:
                program.process.kill()
        yield


@contextmanager
def dead(world: "World") -> Iterator[None]:
    """Have all receivers dead by -9, with their tasks."""
    with held(world.receivers, kill=True), world.locked():
        yield


def one_that_runs(programs: "Iterable[Program]", chance: Chance) -> "Program":
    """Return one of the programs that run."""
    running = [program for program in programs if program.is_running()]
    if not running:
        raise CannotStrike("none runs just now")
    return chance.choice(running)
