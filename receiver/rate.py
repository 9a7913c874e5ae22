"""How fast something moves. A value; the clock is passed in."""

import math
from dataclasses import dataclass

_SPAN = 10.0  # seconds


@dataclass(slots=True)
class Rate:
    """An exponentially weighted mean, which needs no history; times are seconds, and may jump as clocks do."""

    began: float
    at: float
    bytes: float = 0.0
    lines: float = 0.0

    def add(self, size: int, lines: int, now: float) -> None:
        """Count what has moved just now."""
        fading = _fading(self.at, now)
        self.bytes = self.bytes * fading + size / _SPAN
        self.lines = self.lines * fading + lines / _SPAN
        self.at = now

    def per_second(self, now: float) -> tuple[float, float]:
        """Return the bytes and the lines a second at `now`."""
        # before the span is full the mean is over what there was of it, a second at least
        seen = 1.0 - math.exp(min(-1.0, self.began - now) / _SPAN)
        fading = _fading(self.at, now) / seen
        return self.bytes * fading, self.lines * fading


def _fading(since: float, now: float) -> float:
    return math.exp(min(0.0, since - now) / _SPAN)
