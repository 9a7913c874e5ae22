"""Reported loss = actual loss: what was destroyed on purpose, held against what receivers have named, byte for byte.

Decides only. What is destroyed is known from the messages themselves, read before they went. Where lines are destroyed hosts
write no line twice (`Shape.plain`): one that came all the same, as its shipper sent it again, was not lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
"""A host, and the id of one of its files."""
Range = tuple[int, int]
"""Bytes of a source file, half-open."""


@dataclass(frozen=True, slots=True, order=True)
class Destroyed:
    """Lines of a file, from its byte `start` on, that were taken out of the stream before any receiver had committed them."""

    host: str
    file_id: str
    start: int
    lines: bytes

    @property
    def key(self) -> Key:
        return self.host, self.file_id


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
        told[gap["host"], gap["file_id"]].append((gap["start"], gap["end"]))
    for key in sorted({*actual, *told}):
        pardons = (forgotten or {}).get(key[0], 0)
        _compare(key, actual[key], told[key], reached.get(key, 0), pardons, found)
    found.told = sum(map(_size, told.values()))
    return found


def _lost(
    destroyed: Iterable[Destroyed], received: Mapping[str, bytes], found: Audit
) -> dict[Key, list[Range]]:
    """Return where each line that never came begins and ends."""
    lines = {host: frozenset(lines_of(has)) for host, has in received.items()}
    places: dict[Key, list[Range]] = defaultdict(list)
    for one in destroyed:
        start = one.start
        for line in lines_of(one.lines):
            if line not in lines.get(one.host, ()):
                found.lost[one.host].add(line)
                places[one.key].append((start, start + len(line)))
            start += len(line)
    return places


def _compare(
    key: Key, lost: list[Range], told: list[Range], reached: int, pardons: int, found: Audit
) -> None:
    name = f"host {key[0]}, file {key[1]}"
    mine, theirs = _merged(lost), _merged(told)
    if twice := _size(told) - _size(theirs):
        found.findings.append(f"{name}: {twice} bytes are reported twice")
    for start, end in _minus(theirs, mine):
        found.findings.append(
            f"{name}: {end - start} bytes [{start}, {end}) reported, and not lost"
        )
    for start, end in _minus(mine, theirs):
        what = f"{name}: {end - start} bytes [{start}, {end}) lost, and not reported"
        if start == 0 or start >= reached or pardons > 0:
            pardons -= 0 < start < reached
            found.unknowable.append(f"{what}, received up to {reached}")
        else:
            found.findings.append(what)


def _size(ranges: Iterable[Range]) -> int:
    return sum(end - start for start, end in ranges)


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same bytes in order, as few ranges as they take."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _minus(ranges: Iterable[Range], others: list[Range]) -> list[Range]:
    """Return the bytes of merged `ranges` that are in none of the merged `others`."""
    found: list[Range] = []
    for first, end in ranges:
        start = first
        for without, until in others:
            if start < until and without < end:
                if without > start:
                    found.append((start, without))
                start = until
        if start < end:
            found.append((start, end))
    return found


def lines_of(text: bytes) -> list[bytes]:
    """Return lines with their ends; a carriage return is none."""
    *whole, rest = text.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
