"""A task of a verification: the hosts' files of a unit, each by digest and, where that differs, by its lines. Reads only.

The stream is read once for all hosts; what each file should have is kept as a length and a digest. Only a file whose
newest received bytes are others is read once more, alone, and compared line by line.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import Reader
from receiver.replay.tasks import Unit, reach
from receiver.storage.layout import DEFAULT, Days, Layout
from receiver.storage.names import Names
from receiver.storage.packing import SUFFIXES
from receiver.storage.position import Damaged
from receiver.storage.store import Store, path_of
from receiver.verify.comparison import Begin, Counts, Tally, compare, first_of, lines_of, meetings
from receiver.verify.received import Received, closed, received
from receiver.zones import named_zone

__all__ = ["Examined", "FileReport", "Order", "examine"]

_FURTHER = 16 * 1024 * 1024  # bytes further back that are looked through where lines do not fit
_WINDOW = 4 * 1024 * 1024  # bytes of expected lines in which a meeting is looked for
_HEAD = 4096
_END = 2**62  # behind whatever the stream holds
_LOOKS = 20  # at a host whose files are rotated, compressed or removed meanwhile


@dataclass(frozen=True, slots=True)
class Order:
    """What is compared with what; `keeps` says that the receiver removes old segments, and may have removed all.

    Hosts that `moved` are left out: a partition does not know what others have written to their files.

    `progress` is a folder where tasks say how far they are; those of other machines have none of that name.
    """

    output: Path
    progress: Path
    state: Path
    reader: Reader
    keeps: bool
    path_template: str = DEFAULT
    time_zone: str = "UTC"
    moved: frozenset[str] = frozenset()

    def forms(self, live: str) -> tuple[str, ...]:
        """Return the names of a live file; of a day that is over it is compressed under its own."""
        has_date = Layout(self.path_template).has_date
        return (live, *(live + suffix for suffix in SUFFIXES.values())) if has_date else (live,)


@dataclass(frozen=True, slots=True)
class FileReport:
    """A host's file: `size` bytes were compared, the oldest `pruned` ones are no longer kept, `counts` are wrong lines.

    `live` is its path below the output folder, `first` the place of the first difference. `holes` are the numbers of
    closed segments that are not there although older ones are, where lines are missing.
    """

    partition: int
    host: str
    live: str
    size: int
    pruned: int
    counts: Counts
    first: str
    holes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Examined:
    """A unit that was compared; `size` is in bytes, `refused` counts messages that hold no lines."""

    partition: int
    hosts: int
    size: int
    refused: int
    reports: tuple[FileReport, ...]


@dataclass(slots=True)
class _Expected:
    host: str
    length: int = 0
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))


def examine(unit: Unit, order: Order) -> Examined:
    """Compare the hosts of a unit, up to its `until`, which is the committed offset; raises OSError and others."""
    files: dict[str, _Expected] = {}
    refused = 0
    with _Naming(order, unit.partition) as naming:
        for run in order.reader.unit(unit):
            refused += len(run.refused)
            for piece in run.pieces:
                if piece.host in order.moved:
                    continue
                live = naming.live_name(piece)
                if (expected := files.get(live)) is None:
                    expected = files[live] = _Expected(piece.host)
                lines = naming.lines(live, piece)
                expected.length += len(lines)
                expected.digest.update(lines)
            reach(order.progress, unit, run.until)
    segments = closed(order.output)
    reports = []
    for live, expected in sorted(files.items()):
        if not _fits(order, live, segments.get(live, {}), expected):
            report = _Closer(unit, order, expected.host, live, expected.length).report()
            if report.counts.total or report.pruned:
                reports.append(report)
    size = sum(expected.length for expected in files.values())
    hosts = len({expected.host for expected in files.values()})
    return Examined(unit.partition, hosts, size, refused, tuple(reports))


def _fits(order: Order, live: str, names: dict[int, str], expected: _Expected) -> bool:
    """Whether the newest bytes are the expected ones, to the last."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with received(order.output, order.forms(live), expected.length, names) as found:
            start = found.length - expected.length
            if start < 0:
                return False
            for piece in found.pieces(start):
                digest.update(piece)
    except FileNotFoundError:  # rotated meanwhile: the closer look finds it
        return False
    return digest.digest() == expected.digest.digest()


class _Naming:
    """Which live file a partition's lines are in, and how they stand there; asks the store, and changes nothing."""

    def __init__(self, order: Order, partition: int) -> None:
        """Know no host yet; where the store cannot be read, names are as they are given at first."""
        try:
            self._store = Store(path_of(order.state, partition))
        except (OSError, Damaged):
            self._store = Store.in_memory()
        days = Days(named_zone(order.time_zone))
        self._names = Names(self._store, Layout(order.path_template), days, partition)
        self._endings = Endings()

    def __enter__(self) -> "_Naming":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def live_name(self, piece: Piece) -> str:
        """Return the name of the live file that a piece goes to."""
        return self._names.live_name(piece.host, piece.file or None, piece.stored_at)

    def lines(self, live: str, piece: Piece) -> bytes:
        """Return what a piece adds to its live file, asked for in the order of the stream."""
        return self._endings.joined(live, piece)


@dataclass(frozen=True, slots=True)
class _Closer:
    """A file that does not fit, read once more beside what the stream holds of it: `committed` bytes, and more by now."""

    unit: Unit
    order: Order
    host: str
    live: str
    committed: int

    def report(self) -> FileReport:
        """Return what differs, looking again while files are rotated, compressed or removed; raises OSError."""
        for _ in range(_LOOKS - 1):
            try:
                return self._look()
            except FileNotFoundError:
                continue
        return self._look()

    def _look(self) -> FileReport:
        """Compare from where both sides meet: of several such places it is the one from which the fewest lines are wrong."""
        forms = self.order.forms(self.live)
        with received(self.order.output, forms, self.committed + _FURTHER) as found:
            best: FileReport | None = None
            for begin in self._begins(found):
                report = self._compared(found, begin)
                if not report.counts.total:
                    return report
                if best is None or report.counts.total < best.counts.total:
                    best = report
        assert best is not None  # there is always a place to begin
        return best

    def _begins(self, found: Received) -> Iterator[Begin]:
        start = found.length - self.committed
        plain = Begin(max(0, -start), max(0, start))
        ours = b"".join(first_of(self._expected(plain.expected), _HEAD))
        is_sure = b"".join(first_of(found.pieces(plain.found), _HEAD)) == ours
        if is_sure:
            yield plain
        at = max(0, plain.expected - _WINDOW // 2)
        window = list(lines_of(self._expected(at), _WINDOW))
        met = meetings(window, at, lambda: lines_of(found.pieces(0)), start)
        yield from (self._earliest(found, begin) for begin in met)
        if not is_sure and not met:
            yield plain

    def _earliest(self, found: Received, met: Begin) -> Begin:
        """Return the earliest place to compare from where both sides meet: lines before it may be wrong as well."""
        further = met.found - met.expected
        if further <= 0 and not self._is_pruned(found):
            return Begin(0, 0)
        first = Begin(max(0, -further), max(0, further))
        is_line = _is_line(self._expected, first.expected) and _is_line(found.pieces, first.found)
        return first if is_line else met

    def _is_pruned(self, found: Received) -> bool:
        return found.oldest > 1 if found.oldest else self.order.keeps

    def _compared(self, found: Received, begin: Begin) -> FileReport:
        tally = Tally()
        pruned = max(0, begin.expected - begin.found) if self._is_pruned(found) else 0
        for line in lines_of(self._expected(pruned), begin.expected - pruned):
            tally.expect(line)
        compare(
            tally,
            lines_of(self._expected(begin.expected)),
            lines_of(found.pieces(begin.found)),
            begin,
            self.committed,
        )
        counts = tally.counts(
            lambda: lines_of(found.pieces(0), begin.found), lambda: lines_of(self._expected(0))
        )
        return FileReport(
            self.unit.partition,
            self.host,
            self.live,
            self.committed - pruned,
            pruned,
            counts,
            found.place(begin.found if tally.first is None else tally.first),
            found.holes if counts.missing else (),
        )

    def _expected(self, start: int) -> Iterator[bytes]:
        """Yield what the file should have from a byte on, also what is not committed: it may have been written since."""
        item = Unit(self.unit.partition, self.unit.first, _END)
        return _from(self._all_expected(item), start)

    def _all_expected(self, item: Unit) -> Iterator[bytes]:
        with _Naming(self.order, item.partition) as naming:
            for run in self.order.reader.unit(item, self.host):
                for piece in run.pieces:
                    if naming.live_name(piece) == self.live:
                        yield naming.lines(self.live, piece)


def _is_line(pieces: Callable[[int], Iterator[bytes]], at: int) -> bool:
    """Whether a line begins at a byte."""
    return at == 0 or b"".join(first_of(pieces(at - 1), 1)) == b"\n"


def _from(pieces: Iterable[bytes], start: int) -> Iterator[bytes]:
    for piece in pieces:
        if start < len(piece):
            yield piece[start:] if start else piece
        start = max(0, start - len(piece))
