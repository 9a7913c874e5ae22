"""The first or last lines of several files, by when they were stored, each with its context."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from receiver.search.found import Found
from receiver.search.scan import Range


class StoredLines(NamedTuple):
    """Lines of a file in their order, and when those were stored that are no context."""

    lines: list[Found]
    times: list[int]

    def keep_last(self, most: int, context: int) -> "StoredLines":
        """Return the last ones, `most` without their context."""
        wanted = [number for number, one in enumerate(self.lines) if not one.is_context]
        if len(wanted) <= most:
            return self
        first = begin = wanted[-most] if most else len(self.lines)
        while most and first - begin < context and begin and not self.lines[begin].begins:
            begin -= 1
        before = [one._replace(is_context=True) for one in self.lines[begin:first]]
        kept = [*before, *self.lines[first:]]
        kept[:1] = [one._replace(begins=context > 0) for one in kept[:1]]
        return StoredLines(kept, self.times[len(self.times) - most :])

    def keep_first(self, most: int, context: int) -> "StoredLines":
        """Return the first ones, `most` without their context."""
        wanted = [number for number, one in enumerate(self.lines) if not one.is_context]
        if len(wanted) <= most or not most:
            return self if most else StoredLines([], [])
        last = end = wanted[most - 1]
        end += 1
        while end < wanted[most] and end - last <= context and not self.lines[end].begins:
            end += 1
        return StoredLines(self.lines[:end], self.times[:most])

    def split_up(self, context: int) -> Iterator[tuple[int, list[Found]]]:
        """Yield each line by itself, or lines in a row with their context, and their time."""
        times, group = iter(self.times), list[Found]()
        time = 0
        for one in self.lines:
            if group and (one.begins or not context):
                yield time, group
                group = []
            group.append(one)
            time = time if one.is_context else next(times)
        if group:
            yield time, group


def cut_to_last(files: Sequence[StoredLines], most: int, context: int) -> list[StoredLines]:
    """Return of each file what it has of the last lines of all."""
    counts = Counter(number for _, number in _sort(files)[-most:])
    return [one.keep_last(counts[number], context) for number, one in enumerate(files)]


def cut_to_first(files: Sequence[StoredLines], most: int, context: int) -> list[StoredLines]:
    """Return of each file what it has of the first lines of all."""
    counts = Counter(number for _, number in _sort(files)[:most])
    return [one.keep_first(counts[number], context) for number, one in enumerate(files)]


def _sort(files: Sequence[StoredLines]) -> list[tuple[int, int]]:
    """Return the time of each line, with the number of its file."""
    return sorted((time, number) for number, one in enumerate(files) for time in one.times)


def keep_first(block: bytearray, ranges: Sequence[Range], most: int) -> list[Range]:
    """Return the first lines of some ranges of lines in a block."""
    kept = list[Range]()
    for start, end in ranges:
        stop = start
        while most and stop < end:
            stop = block.find(b"\n", stop, end) + 1 or end
            most -= 1
        if start < stop:
            kept.append((start, stop))
    return kept


def keep_last(block: bytearray, ranges: Sequence[Range], most: int) -> list[Range]:
    """Return the last lines of some ranges of lines in a block."""
    kept = list[Range]()
    for start, end in reversed(ranges):
        first = end
        while most and first > start:
            first = max(start, block.rfind(b"\n", start, first - 1) + 1)
            most -= 1
        if first < end:
            kept.append((first, end))
    return kept[::-1]
