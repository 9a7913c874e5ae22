"""A fault: what it does and where, how long it lasts, how it is undone; strokes drawn from a seed.

A stroke is one fault or several that overlap. After most strokes lines have to flow again in time;
after some the next one strikes at once, so that recovery itself is hit.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from tests.chaos.program import Program, held

if TYPE_CHECKING:
    from tests.chaos.world import World

Chance = random.Random
Act = Callable[..., Iterator[None] | None]
"""Strikes some place of a world, with some chance.

One that lasts is a generator: it yields once, and undoes the fault, or does what an operator would,
behind that.
"""
MOMENT = (0.0, 0.0)

_ALONE = 0.45
_SETTLES = 0.75
_LATEST = 4.0  # seconds into the stroke
_PAUSE = 1.5  # seconds


class CannotStrike(Exception):
    """There is nothing to hit just now; counted as not struck, no failure."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that `lasts` for a range of seconds and `needs` features (`Shape.features`)."""

    name: str
    act: Act
    lasts: tuple[float, float] = MOMENT
    needs: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        return getattr(self.act, "func", self.act).__module__.rpartition(".")[2]


FAULTS: dict[str, Fault] = {}
"""All faults by name, as soon as `tests.chaos.faults` is imported."""


def add(name: str, act: Act, lasts: tuple[float, float] = MOMENT, *needs: str) -> None:
    if name in FAULTS:
        raise ValueError(f"two faults are called {name}")
    FAULTS[name] = Fault(name, act, lasts, frozenset(needs))


def fault(lasts: tuple[float, float] = MOMENT, *needs: str) -> Callable[[Act], Act]:
    def added(act: Act) -> Act:
        add(act.__name__.replace("_", "-"), act, lasts, *needs)
        return act

    return added


def chosen(arguments: str, features: frozenset[str]) -> list[Fault]:
    """Return the faults of these names or groups that can strike; raises ValueError."""
    asked = {word.strip() for word in arguments.split(",")} - {"all", ""}
    known = {*FAULTS, *(one.group for one in FAULTS.values())}
    if unknown := asked - known:
        raise ValueError(f"no such faults, see --list: {', '.join(sorted(unknown))}")
    return [
        one
        for one in FAULTS.values()
        if (not asked or asked & {one.name, one.group}) and one.needs <= features
    ]


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault `at` seconds into its stroke; `lasts` in seconds, `seed` decides whom it hits."""

    fault: str
    at: float
    lasts: float
    seed: int


@dataclass(frozen=True, slots=True)
class Stroke:
    """Faults that overlap; `pause` seconds and, if set, flowing lines precede the next stroke."""

    strikes: tuple[Strike, ...]
    settles: bool
    pause: float


def draw(seed: int, faults: Sequence[Fault]) -> Iterator[Stroke]:
    """Draw strokes without end, the same for a seed; single faults are drawn without repetition."""
    chance = random.Random(seed)
    turn: list[Fault] = []
    while True:
        turn = turn or chance.sample(faults, len(faults))
        if chance.random() < _ALONE:
            drawn = [turn.pop()]
        else:
            drawn = chance.choices(faults, k=chance.choice((2, 2, 3, 4)))
        strikes = []
        for number, one in enumerate(drawn):
            at = round(chance.uniform(0, _LATEST), 2) if number else 0.0
            lasts = round(chance.uniform(*one.lasts), 2)
            strikes.append(Strike(one.name, at, lasts, chance.randrange(1 << 30)))
        settles = chance.random() < _SETTLES
        yield Stroke(tuple(strikes), settles, round(chance.uniform(0, _PAUSE), 2))


@contextmanager
def alone(lock: Lock, otherwise: str) -> Iterator[None]:
    """Hold what only one fault may hold at a time; raises `CannotStrike` where another one does."""
    if not lock.acquire(blocking=False):
        raise CannotStrike(otherwise)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def dead(world: "World") -> Iterator[None]:
    with held(world.receivers, kill=True), world.locked():
        yield


def one_that_runs(programs: Iterable[Program], chance: Chance) -> Program:
    running = [program for program in programs if program.is_running()]
    if not running:
        raise CannotStrike("none runs just now")
    return chance.choice(running)
