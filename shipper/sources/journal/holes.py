"""Decides what numbers mean that are missing in a journal. Opens nothing.

`journalctl` has printed an entry, and then one of a number that is not the next. Each number in
between is, by where it would be:

| place | meaning |
|---|---|
| below the first entry that is left in the journal's files | lost: it was vacuumed |
| inside a file that has as many entries as numbers | lost: `journalctl` cannot read it |
| inside a file that has fewer entries | another journal's, for as many numbers as the file lacks: \
before systemd 254 the journals of users and of the system number their entries together |
| between two files, and inside a file of another journal | that journal's |
| between two files | lost: the file in between is gone |
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shipper.sources.journal.headers import JournalFile


class _Range(NamedTuple):
    """Numbers `[start, end)` of files that overlap, which have so many `entries` together."""

    start: int
    end: int
    entries: int


@dataclass(slots=True)
class Holes:
    """What is missing in one journal, given in ascending order."""

    # numbers of other journals that were met in a range, by its start
    _met: Counter[int] = field(default_factory=Counter)

    def count_lost(self, start: int, end: int, journal: str, files: Iterable[JournalFile]) -> int:
        """Return how many of the missing numbers `[start, end)` are lost entries."""
        files = list(files)
        ranges = _join(one for one in files if one.journal == journal)
        others = _join(one for one in files if one.journal != journal)
        first = ranges[0].start if ranges else end
        lost = max(0, min(end, first) - start)
        start = max(start, first)
        for one in ranges:
            within = min(end, one.end) - max(start, one.start)
            if within > 0:
                lost += self._count_unreadable(one, within)
        between = max(0, end - start) - _overlap(start, end, ranges)
        both = (_overlap(max(start, one.start), min(end, one.end), others) for one in ranges)
        return lost + max(0, between - _overlap(start, end, others) + sum(both))

    def _count_unreadable(self, range_: _Range, missing: int) -> int:
        lacks = range_.end - range_.start - range_.entries - self._met[range_.start]
        excused = max(0, min(missing, lacks))
        self._met[range_.start] += excused
        return missing - excused


def _join(files: Iterable[JournalFile]) -> list[_Range]:
    joined: list[_Range] = []
    for one in sorted(files, key=lambda file: file.head):
        if joined and one.head < joined[-1].end:
            last = joined.pop()
            end = max(last.end, one.tail + 1)
            joined.append(_Range(last.start, end, last.entries + one.entries))
        else:
            joined.append(_Range(one.head, one.tail + 1, one.entries))
    return joined


def _overlap(start: int, end: int, ranges: Sequence[_Range]) -> int:
    return sum(max(0, min(end, one.end) - max(start, one.start)) for one in ranges)
