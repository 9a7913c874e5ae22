"""Reported loss = actual loss: what was destroyed on purpose, held against what receivers have named, byte for byte.

Decides only. What is destroyed is known from the messages themselves, read before they went; a line that came all the same
(its shipper sent it again) was not lost. What no report can know is told apart: README, "Gaps".
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Audit",
    "Destroyed",
    "Range",
    "Source",
    "audit",
    "merged",
    "minus",
    "reported",
    "without",
]

_TELLING = 32  # bytes: shorter lines of our writers stand in a log many times
Key = tuple[str, str]
"""A host, and the id of one of its files."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The half-open range of bytes `[start, end)` of a source file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Destroyed:
    """A block that was taken out of the stream before any receiver had committed it."""

    host: str
    file: str
    file_id: str
    span: Range
    lines: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """What was written to one log over all rotations, and where in it each of its files begins."""

    content: bytes
    begins: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of holding reports against losses.

    `lost` are the destroyed blocks that never came. `unknowable` is lost and in no report, as nothing came before it or
    nothing behind it of its file; `told` is how many bytes
    are in reports. `findings` are sentences: lost and not reported, reported and not lost, reported twice.
    """

    lost: tuple[Destroyed, ...] = ()
    unknowable: tuple[str, ...] = ()
    told: int = 0
    findings: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Return how many bytes were lost."""
        return sum(len(one.lines) for one in self.lost)


def audit(
    destroyed: Iterable[Destroyed],
    gaps: Iterable[Mapping[str, Any]],
    reached: Mapping[Key, int],
    received: Mapping[str, bytes],
) -> Audit:
    """Hold the gaps that were reported (`.gaps.jsonl`, an object each) against what was destroyed.

    `reached` is how far each source file has been received, `received` what was received from each host.
    """
    told = reported(gaps)
    destroyed = tuple(dict.fromkeys(destroyed))  # sent again and destroyed again, it is lost once
    all_of: dict[Key, list[Range]] = defaultdict(list)
    for one in destroyed:
        all_of[one.host, one.file_id].append(one.span)
    lost = _lost(destroyed, told, received)
    actual: dict[Key, list[Range]] = defaultdict(list)
    for one in lost:
        actual[one.host, one.file_id].append(one.span)
    findings: list[str] = []
    unknowable: list[str] = []
    for key in sorted({*actual, *told}):
        mine, theirs = merged(actual[key]), merged(told.get(key, ()))
        twice = sum(map(_size, told.get(key, ()))) - sum(map(_size, theirs))
        if twice:
            findings.append(f"{_name(key)}: {twice} bytes are reported twice")
        findings += [
            f"{_name(key)}: {_words(r)} reported, and not lost" for r in minus(theirs, mine)
        ]
        silent = minus(merged(all_of[key]), theirs)
        for piece in minus(mine, theirs):
            begins = next(run.start for run in silent if run.start <= piece.start < run.end)
            if begins == 0 or begins >= reached.get(key, 0):
                behind = f"received up to {reached.get(key, 0)}"
                unknowable.append(f"{_name(key)}: {_words(piece)} lost, {behind}")
            else:
                findings.append(f"{_name(key)}: {_words(piece)} lost, and not reported")
    size = sum(_size(one) for ranges in told.values() for one in ranges)
    return Audit(lost, tuple(unknowable), size, tuple(findings))


def _lost(
    destroyed: Sequence[Destroyed],
    told: Mapping[Key, Sequence[Range]],
    received: Mapping[str, bytes],
) -> tuple[Destroyed, ...]:
    """Return what never came, in the order of `destroyed`; sent again it may have come in other blocks, or of another file id.

    A few lines that stand in the log more than once may have been received from elsewhere: then the report decides, and a
    verdict without or with these lines shows whether it is right. Where no report can be, what stood beside them does.
    """
    files: dict[Key, list[Destroyed]] = defaultdict(list)
    for one in destroyed:
        if minus([one.span], merged(told.get((one.host, one.file_id), ()))):
            files[one.host, one.file_id].append(one)
    came: set[Destroyed] = set()
    for (host, _), blocks in files.items():
        has = received.get(host, b"")
        lines = frozenset(has.splitlines(keepends=True))
        for run in _runs(blocks):
            came |= _came(run, has, lines)
    return tuple(one for one in destroyed if one not in came)


def _runs(blocks: Iterable[Destroyed]) -> list[list[Destroyed]]:
    """Return blocks of a file in order, with those together that go on from one another."""
    found: list[list[Destroyed]] = []
    for one in sorted(blocks, key=lambda block: block.span):
        if found and one.span.start <= found[-1][-1].span.end:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _came(run: Sequence[Destroyed], has: bytes, lines: Collection[bytes]) -> set[Destroyed]:
    """Return the blocks of a run that were received; one without a telling line goes with the next that has one."""
    found: set[Destroyed] = set()
    telling = [one for one in run if _telling(one)]
    verdicts = {one: _is_among(one, lines) or one.lines in has for one in telling or run}
    last = verdicts[(telling or run)[-1]]
    for one in reversed(run):
        last = verdicts.get(one, last)
        if last:
            found.add(one)
    return found


def _telling(block: Destroyed) -> list[bytes]:
    return [line for line in block.lines.splitlines(keepends=True) if len(line) >= _TELLING]


def _is_among(block: Destroyed, received: Collection[bytes]) -> bool:
    telling = _telling(block)
    return bool(telling) and all(line in received for line in telling)


def reported(gaps: Iterable[Mapping[str, Any]]) -> dict[Key, list[Range]]:
    """Return the ranges that a receiver has named, by host and file id."""
    told: dict[Key, list[Range]] = defaultdict(list)
    for gap in gaps:
        told[gap["host"], gap["file_id"]].append(Range(gap["start"], gap["end"]))
    return dict(told)


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


def without(sources: Sequence[Source], lost: Iterable[Destroyed]) -> list[bytes]:
    """Return what can have been received of a host's sources when blocks of them are lost."""
    taken: list[list[Range]] = [[] for _ in sources]
    for block in lost:
        for number, place in _places(sources, block):
            fresh = Range(place, place + len(block.lines))
            if minus([fresh], merged(taken[number])) == [fresh]:
                taken[number].append(fresh)
                break
    return [
        b"".join(
            source.content[r.start : r.end] for r in minus([Range(0, len(source.content))], gone)
        )
        for source, gone in zip(sources, map(merged, taken), strict=True)
    ]


def _places(sources: Sequence[Source], block: Destroyed) -> Iterator[tuple[int, int]]:
    """Yield where a block can have stood: where a file of the log begins, as far on as its span says."""
    for number, source in enumerate(sources):
        for begins in source.begins:
            place = begins + block.span.start
            if source.content.startswith(block.lines, place):
                yield number, place


def _size(one: Range) -> int:
    return one.end - one.start


def _words(one: Range) -> str:
    return f"{_size(one)} bytes [{one.start}, {one.end})"


def _name(key: Key) -> str:
    return f"host {key[0]}, file {key[1]}"
