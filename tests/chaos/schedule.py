"""A schedule of faults, as a value that is drawn from a seed. Knows no world.

A schedule is a row of strokes. A stroke is one fault or several that overlap; after most of them lines have to flow again
within a bound, after some the next one strikes at once, so that recovery itself is hit.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["MOMENT", "Act", "End", "Fault", "FaultKind", "Lasts", "Stroke", "draw"]

End = Callable[[], None]
"""Ends a fault, and does what an operator would do then; returns when that is done."""
Act = Callable[["World", random.Random], End | None]
"""Begins a fault; what it returns is called when the fault's time is over, None for what happens at a moment."""
Lasts = tuple[float, float]
"""The range of a fault's length in seconds."""
MOMENT: Lasts = (0.0, 0.0)

_ALONE = 0.45
_SETTLES = 0.75
_LATEST = 4.0  # seconds into the stroke
_PAUSE = 1.5  # seconds


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: `act` does it to a world, and `words` say what that is.

    `weight` is how often it is drawn, in relation to others. `needs` names features of a world without which it cannot be done
    (`World.features`). One that `destroys` takes lines on purpose: it is drawn only when asked for.
    """

    name: str
    act: Act
    words: str = ""
    lasts: Lasts = MOMENT
    weight: float = 1.0
    needs: frozenset[str] = frozenset()
    destroys: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: begins `at` seconds into its stroke, lasts for `lasts` seconds; `seed` decides whom and how it hits."""

    kind: str
    at: float
    lasts: float
    seed: int


@dataclass(frozen=True, slots=True)
class Stroke:
    """Faults that overlap, and whether lines must flow again before the next stroke, which comes after `pause` seconds."""

    faults: tuple[Fault, ...]
    settles: bool = True
    pause: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def draw(seed: int, kinds: Sequence[FaultKind]) -> Iterator[Stroke]:
    """Draw strokes without end; the same seed and kinds give the same ones.

    Strokes of one fault take all kinds in turn, in an order drawn anew for each turn; what overlaps is drawn by weight.
    """
    chance = random.Random(seed)
    weights = [kind.weight for kind in kinds]
    turn: list[FaultKind] = []
    while True:
        turn = turn or chance.sample(kinds, len(kinds))
        if chance.random() < _ALONE:
            chosen = [turn.pop()]
        else:
            chosen = chance.choices(kinds, weights, k=chance.choice((2, 2, 3, 4)))
        faults = [
            _fault(kind, chance, chance.uniform(0, _LATEST) if number else 0.0)
            for number, kind in enumerate(chosen)
        ]
        settles = chance.random() < _SETTLES
        yield Stroke(tuple(faults), settles, round(chance.uniform(0, _PAUSE), 2))


def _fault(kind: FaultKind, chance: random.Random, at: float) -> Fault:
    lasts = round(chance.uniform(*kind.lasts), 2)
    return Fault(kind.name, round(at, 2), lasts, chance.randrange(1 << 30))
