"""The judge of every journey: what was written on a host against what was received from it.

Knows nothing of how lines travel; counts what is missing, repeated, out of order, torn, altered and foreign, each
under its own name, and says whether the bytes are equal.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.alignment import align
from tests.support.fragments import name_unknown
from tests.support.received import parts_of, read_segments, segments_of

__all__ = ["Verdict", "judge", "judge_host"]

_SHOWN = 3
_TO_BE_NAMED = 500_000_000  # bytes; each line of more would not fit into memory
_SHARED = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the lines of a host. All numbers are lines.

    `missing`: written, and nothing of it received. `repeated`: received more often than written. `reordered`: received
    out of the order of its file. `torn`: a received line that is a part of written ones, or several run together.
    `altered`: like a written one that is missing, with other bytes. `foreign`: never written. `examples` shows some.
    """

    written: int
    received: int
    missing: int = 0
    repeated: int = 0
    reordered: int = 0
    torn: int = 0
    altered: int = 0
    foreign: int = 0
    bytes_equal: bool = True
    examples: tuple[str, ...] = ()

    @property
    def is_perfect(self) -> bool:
        """Whether every line arrived once, in order, byte for byte."""
        counts = (
            self.missing,
            self.repeated,
            self.reordered,
            self.torn,
            self.altered,
            self.foreign,
        )
        return self.bytes_equal and not any(counts)

    @property
    def is_complete(self) -> bool:
        """Whether every line arrived once, byte for byte, if not in order."""
        return (
            self.received == self.written
            and not any((self.missing, self.repeated, self.torn, self.altered, self.foreign))
            and (self.bytes_equal or self.reordered > 0)
        )

    def __str__(self) -> str:
        return (
            f"{self.written} written, {self.received} received: {self.missing} missing, "
            f"{self.repeated} repeated, {self.reordered} out of order, {self.torn} torn, "
            f"{self.altered} altered, {self.foreign} foreign; "
            f"bytes {'equal' if self.bytes_equal else 'DIFFER'}"
            + "".join(f"\n  {e}" for e in self.examples)
        )


def judge_host(
    sources: Iterable[Path], output: Path, host: str, to_be_named: int = _TO_BE_NAMED
) -> Verdict:
    """Judge what a receiver wrote for `host` below `output` against the source files, each in the order written.

    A single source is compared as it is read, so that some GB need no memory; where one of more than `to_be_named` bytes differs, it is told whether that
    is a matter of order (`reordered` is 1), and not what became of each line.
    """
    paths, segments = list(sources), segments_of(output, host)
    if len(paths) == 1:
        if (lines := _equal_lines(paths[0], segments)) is not None:
            return Verdict(lines, lines)
        if paths[0].stat().st_size > to_be_named:
            return _summary(paths[0], segments)
    return judge([path.read_bytes() for path in paths], read_segments(segments))


def _equal_lines(source: Path, segments: Sequence[Path]) -> int | None:
    """Return how many lines both hold; None where they differ."""
    lines = 0
    with source.open("rb") as file:
        for part in parts_of(segments):
            if file.read(len(part)) != part:
                return None
            lines += part.count(b"\n")
        return None if file.read(1) else lines


def _summary(source: Path, segments: Sequence[Path]) -> Verdict:
    written, received = _sum([source]).finished, _sum(segments)
    same = written == received
    told = "the same lines, in another order" if same else "not the same lines"
    return Verdict(
        written.lines,
        received.finished.lines,
        reordered=int(same),
        bytes_equal=False,
        examples=(told,),
    )


@dataclass(frozen=True, slots=True)
class _Sum:
    """Of lines in any order: how many, the sum of their hashes, and what stands behind the last newline."""

    lines: int
    hashes: int
    tail: bytes

    @property
    def finished(self) -> "_Sum":
        if not self.tail:
            return self
        return _Sum(self.lines + 1, self.hashes + hash(self.tail), b"")


def _sum(files: Sequence[Path]) -> _Sum:
    lines, hashes, left = 0, 0, b""
    for part in parts_of(files):
        *whole, left = (left + part).split(b"\n")
        lines += len(whole)
        hashes += sum(map(hash, whole))
    return _Sum(lines, hashes, left)


def judge(sources: Sequence[bytes], received: bytes) -> Verdict:
    """Judge the bytes received from a host against those of its source files, which may be interleaved by lines.

    Order is judged within each source; a line that stands in several sources is judged by its count alone. A source's
    unfinished last line counts as finished, as the shipper finishes it.
    """
    written = [_finish(source) for source in sources]
    if len(written) == 1 and written[0] == received:
        count = received.count(b"\n")
        return Verdict(count, count)
    findings = _Findings(written, received)
    return findings.verdict(
        (received == written[0]) if len(written) == 1 else len(received) == sum(map(len, written))
    )


class _Findings:
    """The pieces of a verdict, found one after the other."""

    def __init__(self, sources: Sequence[bytes], received: bytes) -> None:
        self.sources = sources
        self.lines = [_lines(source) for source in sources]
        self.owners = _owners(self.lines)
        self.tail = received[received.rfind(b"\n") + 1 :]
        self.received = _lines(received[: len(received) - len(self.tail)])
        self.lost: list[bytes] = []
        self.repeated: list[bytes] = []
        self.moved: list[bytes] = []
        self.unknown: list[bytes] = []
        self._sort_out()

    def _sort_out(self) -> None:
        by_owner: list[list[bytes]] = [[] for _ in self.lines]
        shared: list[bytes] = []
        find = self.owners.get
        for line in self.received:
            owner = find(line)
            if owner is None:
                self.unknown.append(line)
            elif owner == _SHARED:
                shared.append(line)
            else:
                by_owner[owner].append(line)
        for number, own in enumerate(by_owner):
            self._compare(self.lines[number], own)
        self._count_shared(shared)
        if self.tail:
            self.unknown.append(self.tail)

    def _compare(self, written: list[bytes], received: list[bytes]) -> None:
        if len(self.lines) > 1:
            written = [line for line in written if self.owners[line] != _SHARED]
        if written == received:
            return
        alignment = align(written, received)
        self.lost += [written[i] for i in alignment.lost]
        self.repeated += [received[i] for i in alignment.extra]
        self.moved += [received[i] for i in alignment.moved]

    def _count_shared(self, received: list[bytes]) -> None:
        if len(self.lines) == 1:
            return
        written = Counter(
            line for lines in self.lines for line in lines if self.owners[line] == _SHARED
        )
        seen = Counter(received)
        self.lost += (written - seen).elements()
        self.repeated += (seen - written).elements()

    def verdict(self, same_bytes: bool) -> Verdict:
        naming = name_unknown(self.unknown, self.lost, self.sources)
        missing = [line for i, line in enumerate(self.lost) if i not in naming.explained]
        kinds = {
            "missing": missing,
            "repeated": self.repeated,
            "reordered": self.moved,
            "torn": naming.torn,
            "altered": naming.altered,
            "foreign": naming.foreign,
        }
        return Verdict(
            written=sum(map(len, self.lines)),
            received=len(self.received) + bool(self.tail),
            bytes_equal=same_bytes and not any(kinds.values()),
            examples=tuple(
                f"{kind}: {line[:160]!r}"
                for kind, lines in kinds.items()
                for line in lines[:_SHOWN]
            ),
            **{kind: len(lines) for kind, lines in kinds.items()},
        )


def _finish(source: bytes) -> bytes:
    return source if not source or source.endswith(b"\n") else source + b"\n"


def _lines(text: bytes) -> list[bytes]:
    return text.split(b"\n")[:-1]


def _owners(sources: Sequence[Sequence[bytes]]) -> dict[bytes, int]:
    owners: dict[bytes, int] = {}
    for number, lines in enumerate(sources):
        if number:
            owners.update(dict.fromkeys(set(lines) & owners.keys(), _SHARED))
        for line in lines:
            owners.setdefault(line, number)
    return owners
