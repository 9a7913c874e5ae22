"""Ranges of bytes: those of several together, and those that are left of some without others. Values only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Range", "merged", "minus", "size_of"]


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The half-open range of bytes `[start, end)` of a source file."""

    start: int
    end: int


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same bytes in order, as few ranges as they take."""
    found: list[Range] = []
    for one in sorted(ranges):
        if found and one.start <= found[-1].end:
            found[-1] = Range(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def minus(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Return the bytes of merged `ranges` that are in none of the merged `others`."""
    found: list[Range] = []
    for one in ranges:
        start = one.start
        for other in others:
            if other.end <= start or other.start >= one.end:
                continue
            if other.start > start:
                found.append(Range(start, other.start))
            start = max(start, other.end)
        if start < one.end:
            found.append(Range(start, one.end))
    return found


def size_of(one: Range) -> int:
    """Return how many bytes a range has."""
    return one.end - one.start
