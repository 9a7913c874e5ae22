"""What came of runs in pairs: one of each, in turn, so that the machine's moods fall on both. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Ratio", "ratio"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the ratios of all pairs, and how far they lie apart."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}..{self.most:.2f})"


def ratio(ones: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return how `ones` compare with `others`, which were measured beside them in this order.

    Raises ValueError for runs that are not in pairs, and for an other one of 0.
    """
    if not ones:
        raise ValueError("no runs")
    if not all(others):
        raise ValueError("nothing to compare with: 0")
    found = sorted(one / other for one, other in zip(ones, others, strict=True))
    return Ratio(median(found), found[0], found[-1])
