"""Which closed segments are to go: those beyond a number per host, older than an age, or beyond a total size. Decides only.

Live files are never asked about here, nor what an undo may need.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

__all__ = ["Limits", "Segment", "superfluous"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A closed segment of a live file; where there is a file a day, `live` is the one for all of them, and `day` tells them apart.

    `size` is in bytes as they are on disk, `moment` that of its last line, in nanoseconds since the epoch.
    """

    live: str
    number: int
    name: str
    size: int = 0
    moment: int = 0
    day: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept; 0 is no limit.

    `number` segments per live file, none whose last line is `age` nanoseconds older than the newest line of all, `size`
    bytes in all.
    """

    number: int = 0
    age: int = 0
    size: int = 0

    def __bool__(self) -> bool:
        """Say whether there is any limit."""
        return bool(self.number or self.age or self.size)


def superfluous(segments: Iterable[Segment], limits: Limits, now: int) -> list[Segment]:
    """Return what is to be removed, oldest first: of one live file by number, over all of them by time.

    `now` is what age counts from, in nanoseconds since the epoch: no later than the newest line that anybody has seen.
    A segment counts as young as the youngest before it, so that a file never loses a piece out of its middle.
    """
    ordered = sorted(segments, key=lambda segment: (segment.live, segment.day, segment.number))
    aged: list[tuple[int, Segment]] = []
    beyond: set[str] = set()
    for _, group in groupby(ordered, key=lambda segment: segment.live):
        of_one, moment = list(group), 0
        for segment in of_one:
            moment = max(moment, segment.moment)
            aged.append((moment, segment))
        beyond.update(s.name for s in of_one[: -limits.number or len(of_one)] if limits.number)
    aged.sort(key=lambda item: item[0])  # stable: of one live file the lower number stays first
    left = sum(segment.size for _, segment in aged)
    gone = []
    for moment, segment in aged:
        is_old = limits.age and moment < now - limits.age
        if segment.name in beyond or is_old or (limits.size and left > limits.size):
            gone.append(segment)
            left -= segment.size
    return gone
