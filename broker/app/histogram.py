"""A histogram of lengths of time, in the form in which Prometheus wants it. Counts; never stores a sample."""

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["Histogram"]


class Histogram:
    """Counts observations in buckets; `bounds` are upper and inclusive, in seconds, rising."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin with none."""
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.sum += seconds
        self._counts[bisect_left(self.bounds, seconds)] += 1

    def cumulative(self) -> list[int]:
        """Return for each bound how many were at most that long, and at last how many there were."""
        total, counts = 0, []
        for count in self._counts:
            total += count
            counts.append(total)
        return counts
