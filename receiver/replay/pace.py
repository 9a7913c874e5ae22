"""When a line that was stored at some time is due in a replay. Decides only."""

import re
from dataclasses import dataclass

__all__ = ["Pace", "read_speed"]

_TIMES = re.compile(r"([0-9]+(?:\.[0-9]+)?)x")


def read_speed(text: str) -> float:
    """Return how many times faster than it was: 0 for as fast as it goes. Raises ValueError."""
    word = text.strip().lower().replace("\N{MULTIPLICATION SIGN}", "x")
    if word in {"instant", "original"}:
        return 0.0 if word == "instant" else 1.0
    found = _TIMES.fullmatch(word)
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no speed: give instant, original, or a factor such as 10x")
    return float(found[1])


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a replay that began at `began` (seconds of a clock) with a line stored at `origin` (nanoseconds)."""

    factor: float
    began: float
    origin: int

    def due(self, stored_at: int) -> float:
        """Return the time of the clock at which a line is due that was stored at `stored_at`."""
        return self.began + (stored_at - self.origin) / 1e9 / self.factor
