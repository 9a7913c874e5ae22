"""Reported loss = actual loss: what was destroyed on purpose, held against what receivers have named, byte for byte.

Decides only. What is destroyed is known from the messages themselves, read before they went; a line that came all the same
(its shipper sent it again) was not lost. What no report can know is told apart: docs/receiver.md.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tests.chaos.ranges import Range, merged, minus, size_of

__all__ = [
    "TELLING",
    "Audit",
    "Destroyed",
    "Source",
    "audit",
    "reported",
    "without",
]

TELLING = 32
"""Bytes: shorter lines of our writers stand in a log many times."""
Key = tuple[str, str]
"""A host, and the id of one of its files."""


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Lines of a file that were taken out of the stream before any receiver had committed it."""

    host: str
    file: str
    file_id: str
    span: Range
    lines: bytes

    @property
    def key(self) -> Key:
        return self.host, self.file_id


@dataclass(frozen=True, slots=True)
class Source:
    """What was written to one log over all rotations, and where in it each of its files begins."""

    content: bytes
    begins: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of holding reports against losses.

    `lost` is what was destroyed and never came, each byte of a file once. `unknowable` is lost and in no report, as nothing came before it or
    nothing behind it of its file, or what was known of it was harmed; `told` is how many bytes
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
    forgotten: Mapping[str, int] | None = None,
) -> Audit:
    """Hold the gaps that were reported (`.gaps.p<N>.jsonl`, an object each) against what was destroyed.

    `reached` is how far each source file has been received, `received` what was received from each host. `forgotten` is how many
    times what was known of a host's gaps may have been lost: so many of each file are in no report.
    """
    told = reported(gaps)
    pieces = _pieces(destroyed)
    lost = _lost(pieces, told, received)
    actual: dict[Key, list[Range]] = defaultdict(list)
    for one in lost:
        actual[one.key].append(one.span)
    findings: list[str] = []
    unknowable: list[str] = []
    for key in sorted({*actual, *told}):
        mine, theirs = merged(actual[key]), merged(told.get(key, ()))
        twice = sum(map(size_of, told.get(key, ()))) - sum(map(size_of, theirs))
        if twice:
            findings.append(f"{_name(key)}: {twice} bytes are reported twice")
        findings += [
            f"{_name(key)}: {_words(r)} reported, and not lost" for r in minus(theirs, mine)
        ]
        left = (forgotten or {}).get(key[0], 0)
        for piece in minus(mine, theirs):
            if piece.start == 0 or piece.start >= reached.get(key, 0):
                behind = f"received up to {reached.get(key, 0)}"
                unknowable.append(f"{_name(key)}: {_words(piece)} lost, {behind}")
            elif left:
                left -= 1
                unknowable.append(f"{_name(key)}: {_words(piece)} lost, and may be forgotten")
            else:
                findings.append(f"{_name(key)}: {_words(piece)} lost, and not reported")
    size = sum(size_of(one) for ranges in told.values() for one in ranges)
    return Audit(lost, tuple(unknowable), size, tuple(findings))


def _pieces(destroyed: Iterable[Destroyed]) -> list[Destroyed]:
    """Return what was destroyed, each byte of a file once, in order and cut wherever a block of its host began or ended.

    What is sent again is in other blocks, and some of these may come: it is their bounds that part what was lost from what was not.
    """
    files: dict[Key, list[Destroyed]] = defaultdict(list)
    bounds: dict[str, set[int]] = defaultdict(set)
    for one in destroyed:
        files[one.key].append(one)
        bounds[one.host] |= {one.span.start, one.span.end}
    found: list[Destroyed] = []
    for key in sorted(files):
        own = {place for one in files[key] for place in (one.span.start, one.span.end)}
        reached = 0
        for one in sorted(files[key], key=lambda block: block.span):
            found += _cut(one, reached, own, bounds[one.host])
            reached = max(reached, one.span.end)
    return found


def _cut(block: Destroyed, reached: int, own: Set[int], others: Set[int]) -> Iterator[Destroyed]:
    """Yield a block from `reached` on, cut at bounds of its file's blocks, and between lines at those of others."""
    span, lines = block.span, block.lines
    if len(lines) != size_of(span):  # nobody knows which byte of the file is which of the lines
        if span.end > reached:
            yield block
        return
    begin = max(span.start, reached)
    between = {place for place in others if lines[: max(place - span.start, 0)].endswith(b"\n")}
    inside = {place for place in own | between if begin < place < span.end}
    for start, end in pairwise(sorted({begin, span.end} | inside) if begin < span.end else []):
        part = lines[start - span.start : end - span.start]
        yield replace(block, span=Range(start, end), lines=part)


def _lost(
    pieces: Sequence[Destroyed],
    told: Mapping[Key, Sequence[Range]],
    received: Mapping[str, bytes],
) -> tuple[Destroyed, ...]:
    """Return what never came, in the order of `pieces`; sent again it may have come in other blocks, or of another file id.

    A few lines that stand in the log more than once may have been received from elsewhere: then the report decides, and a
    verdict without or with these lines shows whether it is right. Where no report can be, what stood beside them does.
    """
    files: dict[Key, list[Destroyed]] = defaultdict(list)
    for one in pieces:
        if minus([one.span], merged(told.get(one.key, ()))):
            files[one.key].append(one)
    came: set[Destroyed] = set()
    lines = {host: frozenset(_lines(has)) for host, has in received.items()}
    for (host, _), mine in files.items():
        for run in _runs(mine):
            came |= _came(run, received.get(host, b""), lines.get(host, frozenset()))
    return tuple(one for one in pieces if one not in came)


def _runs(pieces: Iterable[Destroyed]) -> list[list[Destroyed]]:
    """Return pieces of a file, in order, with those together that go on from one another."""
    found: list[list[Destroyed]] = []
    for one in pieces:
        if found and one.span.start <= found[-1][-1].span.end:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _came(run: Sequence[Destroyed], has: bytes, lines: Collection[bytes]) -> set[Destroyed]:
    """Return the pieces of a run that were received; one without a telling line by what it stands beside."""
    telling = [number for number, one in enumerate(run) if _telling(one)]
    if not telling:
        return {one for one in run if one.lines in has}
    found = {run[n] for n in telling if _is_among(run[n], lines) or run[n].lines in has}
    for begin, end in pairwise([-1, *telling, len(run)]):
        before = run[begin] if begin >= 0 and run[begin] in found else None
        behind = run[end] if end < len(run) and run[end] in found else None
        between = run[begin + 1 : end]
        if before and (behind or end == len(run)):
            found |= set(between)
        elif before:
            found |= _stands_behind(before, between, has)
        elif behind:
            found |= _stands_before(behind, between, has)
    return found


def _stands_behind(before: Destroyed, pieces: Sequence[Destroyed], has: bytes) -> set[Destroyed]:
    """Return those of the pieces that were received right behind the one that was."""
    seen = _telling(before)[-1]
    text = before.lines[before.lines.rindex(seen) :]
    found: set[Destroyed] = set()
    for one in pieces:
        text += one.lines
        if text in has:
            found.add(one)
    return found


def _stands_before(behind: Destroyed, pieces: Sequence[Destroyed], has: bytes) -> set[Destroyed]:
    """Return those of the pieces that were received right before the one that was."""
    seen = _telling(behind)[0]
    text = behind.lines[: behind.lines.index(seen) + len(seen)]
    found: set[Destroyed] = set()
    for one in reversed(pieces):
        text = one.lines + text
        if has.startswith(text) or b"\n" + text in has:
            found.add(one)
    return found


def _telling(block: Destroyed) -> list[bytes]:
    return [line for line in _lines(block.lines) if len(line) >= TELLING]


def _lines(text: bytes) -> list[bytes]:
    """Return lines with their ends; a carriage return is none, as any piece of a line may stand in others."""
    *whole, rest = text.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _is_among(block: Destroyed, received: Collection[bytes]) -> bool:
    telling = _telling(block)
    return bool(telling) and all(line in received for line in telling)


def reported(gaps: Iterable[Mapping[str, Any]]) -> dict[Key, list[Range]]:
    """Return the ranges that a receiver has named, by host and file id."""
    told: dict[Key, list[Range]] = defaultdict(list)
    for gap in gaps:
        told[gap["host"], gap["file_id"]].append(Range(gap["start"], gap["end"]))
    return dict(told)


def without(sources: Sequence[Source], lost: Iterable[Destroyed]) -> list[bytes]:
    """Return what can have been received of a host's sources when pieces of them are lost.

    A file may have had several ids, one after the other, and what was sent by the one and then by the other is lost once.
    """
    taken: list[list[Range]] = [[] for _ in sources]
    files: dict[Key, list[Destroyed]] = defaultdict(list)
    for one in lost:
        files[one.key].append(one)
    for pieces in files.values():
        number, gone = max(_places(sources, pieces), key=lambda place: _fit(place, taken))
        taken[number] += gone
    return [
        b"".join(
            source.content[r.start : r.end] for r in minus([Range(0, len(source.content))], gone)
        )
        for source, gone in zip(sources, map(merged, taken), strict=True)
    ]


_Place = tuple[int, list[Range]]
"""The number of a source, and the ranges of it where pieces of a file stood, if it was one of this source's files."""


def _places(sources: Sequence[Source], pieces: Sequence[Destroyed]) -> Iterator[_Place]:
    for number, source in enumerate(sources):
        for begins in source.begins:
            yield number, list(_standing(source, begins, pieces))


def _standing(source: Source, begins: int, pieces: Sequence[Destroyed]) -> Iterator[Range]:
    for one in pieces:
        start = begins + one.span.start
        if source.content.startswith(one.lines, start):
            yield Range(start, start + len(one.lines))


def _fit(place: _Place, taken: Sequence[Sequence[Range]]) -> tuple[int, int]:
    """Return how many pieces stood there, and of those how many bytes are not lost by other ids."""
    number, found = place
    return len(found), sum(map(size_of, minus(merged(found), merged(taken[number]))))


def _words(one: Range) -> str:
    return f"{size_of(one)} bytes [{one.start}, {one.end})"


def _name(key: Key) -> str:
    return f"host {key[0]}, file {key[1]}"
