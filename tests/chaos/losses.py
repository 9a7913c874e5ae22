"""Reported loss = actual loss: what was destroyed on purpose, held against what receivers have named, byte for byte.

Decides only. What is destroyed is known from the messages themselves, read before they went. Where lines are destroyed hosts
write no line twice (`Shape.plain`): one that came all the same, as its shipper sent it again, was not lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Audit", "Destroyed", "Key", "Range", "audit", "lines_of", "minus"]

Key = tuple[str, str]
"""A host, and the id of one of its files."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The half-open range of bytes `[start, end)` of a source file."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.size} bytes [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Lines of a file, from its byte `start` on, that were taken out of the stream before any receiver had committed them."""

    host: str
    file_id: str
    start: int
    lines: bytes

    @property
    def key(self) -> Key:
        return self.host, self.file_id

    def each(self) -> Iterator[tuple[bytes, Range]]:
        """Yield every line with its bytes."""
        start = self.start
        for line in lines_of(self.lines):
            yield line, Range(start, start + len(line))
            start += len(line)


@dataclass(slots=True)
class Audit:
    """What came of holding reports against losses.

    `lost` are the lines of each host that never came. `unknowable` is lost and in no report, as nothing came before it or
    nothing behind it of its file, or what was known of it was harmed; `told` is how many bytes are in reports. `findings` are
    sentences: lost and not reported, reported and not lost, reported twice.
    """

    lost: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    unknowable: list[str] = field(default_factory=list)
    told: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return how many bytes were lost."""
        return sum(len(line) for lines in self.lost.values() for line in lines)


def audit(
    destroyed: Iterable[Destroyed],
    gaps: Iterable[Mapping[str, Any]],
    reached: Mapping[Key, int],
    received: Mapping[str, bytes],
    forgotten: Mapping[str, int] | None = None,
) -> Audit:
    """Hold the gaps that were reported (`.gaps.p<N>.jsonl`, an object each) against what was destroyed.

    `reached` is how far each source file has been received, `received` what was received from each host. `forgotten` is how many
    times what was known of a host's gaps may have been lost: so many of each file are in no report.
    """
    found = Audit()
    actual = _lost(destroyed, received, found)
    told: dict[Key, list[Range]] = defaultdict(list)
    for gap in gaps:
        told[gap["host"], gap["file_id"]].append(Range(gap["start"], gap["end"]))
    for key in sorted({*actual, *told}):
        _compare(key, actual.get(key, []), told.get(key, []), reached.get(key, 0), found)
        _forgive(key, (forgotten or {}).get(key[0], 0), found)
    found.told = sum(one.size for ranges in told.values() for one in ranges)
    return found


def _lost(
    destroyed: Iterable[Destroyed], received: Mapping[str, bytes], found: Audit
) -> dict[Key, list[Range]]:
    lines = {host: frozenset(lines_of(has)) for host, has in received.items()}
    ranges: dict[Key, list[Range]] = defaultdict(list)
    for one in destroyed:
        for line, place in one.each():
            if line not in lines.get(one.host, ()):
                found.lost[one.host].add(line)
                ranges[one.key].append(place)
    return ranges


def _compare(
    key: Key, lost: Sequence[Range], told: Sequence[Range], reached: int, found: Audit
) -> None:
    name = f"host {key[0]}, file {key[1]}"
    mine, theirs = _merged(lost), _merged(told)
    if twice := sum(one.size for one in told) - sum(one.size for one in theirs):
        found.findings.append(f"{name}: {twice} bytes are reported twice")
    found.findings += [f"{name}: {one} reported, and not lost" for one in minus(theirs, mine)]
    for piece in minus(mine, theirs):
        if piece.start == 0 or piece.start >= reached:
            found.unknowable.append(f"{name}: {piece} lost, received up to {reached}")
        else:
            found.findings.append(f"{name}: {piece} lost, and not reported")


def _forgive(key: Key, times: int, found: Audit) -> None:
    """Take so many losses of a file that nobody has reported for forgotten."""
    name = f"host {key[0]}, file {key[1]}: "
    silent = [one for one in found.findings if one.startswith(name) and "not reported" in one]
    for one in silent[:times]:
        found.findings.remove(one)
        found.unknowable.append(f"{one}: it may be forgotten")


def lines_of(text: bytes) -> list[bytes]:
    """Return lines with their ends; a carriage return is none."""
    *whole, rest = text.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _merged(ranges: Iterable[Range]) -> list[Range]:
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
