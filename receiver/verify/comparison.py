"""Compares the files of one partition with the stream: by a digest each, and byte by byte where the digest differs. Reads only.

The store says before which message everything was received, and how many bytes each file has of it. The stream is read once
for all hosts, and only the length and the digest of what each file should have are kept. A file whose newest bytes have
another digest is compared with the stream once more, alone.
"""

import gzip
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import zstandard

from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import LineReader, LineRun, ReplaySpan, StreamSpan
from receiver.storage.disk import opened
from receiver.storage.folders import within
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.retention import compressed_form
from receiver.storage.store import Store
from receiver.zones import named_zone

__all__ = ["ComparedFile", "ComparedPartition", "Comparison", "ComparisonSettings", "snapshot"]

_READ = 1024 * 1024
_ATTEMPTS, _AGAIN = 20, 0.1  # for a file that is rotated or removed meanwhile, and seconds between


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """What is compared; hosts that `moved` are left out: a partition does not know what others have written to their files."""

    output: Path
    reader: LineReader
    path_template: str
    time_zone: str
    moved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A host's file that differs, or of which the oldest `pruned` bytes are no longer kept; `size` bytes were compared.

    `live` is its path below the output folder, `expected` and `received` count lines. `difference` is the file and the byte
    at which it differs first, empty where it does not.
    """

    partition: int
    host: str
    live: str
    size: int
    pruned: int
    expected: int
    received: int
    difference: str


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """A partition that was compared; `size` is in bytes, `refused` counts messages that hold no lines."""

    partition: int
    hosts: int
    size: int
    refused: int
    files: tuple[ComparedFile, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A live file, or a segment that it was closed as, of `length` bytes of lines, None where nobody has counted them."""

    path: str
    number: int
    length: int | None
    is_live: bool = False

    def pieces(self, output: Path) -> Iterator[bytes]:
        """Yield its lines, decompressed, those of a live file as far as the store has them; raises OSError."""
        left = self.length if self.is_live else None
        with within(output, self.path) as path, _open(path) as file:
            while left is None or left > 0:
                piece = file.read(_READ if left is None else min(_READ, left))
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece


@dataclass(frozen=True, slots=True)
class _File:
    """A live file with its closed segments, oldest first.

    Where it `is_pruned`, older segments are no longer kept. While it `is_changing`, a batch that is not stored yet closes it.
    """

    parts: tuple[_Part, ...] = ()
    is_pruned: bool = False
    is_changing: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store has at one moment: lines of all messages before `until`, of a stream made at `created`."""

    until: int
    created: str
    files: dict[str, _File]
    last_day: str


def snapshot(store: Store, path: str = "") -> Snapshot | None:
    """Return what a store has, of one live file where its path is given; None where nothing was received yet.

    Raises OSError, `Damaged`.
    """
    with store.unchanged():
        batch = store.batch()
        rows = store.files("? IN ('', path)", path)
        segments = store.segments("? IN ('', live)", path)
        last_day = str(store.rows("SELECT coalesce(max(day), '') FROM files")[0][0])
    if batch is None:
        return None
    closed: dict[str, list[_Part]] = {}
    changing = {segment.live for segment in segments if segment.batch > batch.number}
    for segment in segments:
        if segment.batch <= batch.number:
            number = segment.number if segment.path != segment.live else 0
            closed.setdefault(segment.live, []).append(_Part(segment.path, number, segment.length))
    files = {
        row.path: replace(
            _file(row.path, row.length, row.number, closed.get(row.path, [])),
            is_changing=row.path in changing,
        )
        for row in rows
    }
    return Snapshot(batch.until, batch.created, files, last_day)


def _file(path: str, length: int | None, next_number: int, closed: list[_Part]) -> _File:
    parts = sorted(closed, key=lambda part: part.number or next_number)
    if length is not None and not any(part.path == path for part in closed):
        parts.append(_Part(path, 0, length, is_live=True))
    oldest = min({part.number for part in parts} - {0}, default=next_number)
    return _File(tuple(parts), oldest > 1)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, or the compressed form that has taken its place; raises OSError."""
    suffix = ""
    try:
        raw = opened(path)
    except FileNotFoundError:
        form = compressed_form(path)
        if form is None:
            raise
        raw, suffix = opened(form), form.suffix
    with raw:
        if suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as file:
                yield file  # type: ignore[misc]
        elif suffix:
            unpacker = zstandard.ZstdDecompressor()
            with unpacker.stream_reader(raw, read_across_frames=True, closefd=False) as stream:
                yield stream
        else:
            yield raw


class _Bytes:
    """Pieces of bytes, of which the first so many are taken at a time; `lines` counts the newlines among them."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""
        self.lines = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        self._rest = self._rest or next(self._pieces, b"")
        return not self._rest

    def take(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes, or what is left."""
        while size > 0 and not self.is_over:
            piece, self._rest = self._rest[:size], self._rest[size:]
            self.lines += piece.count(b"\n")
            size -= len(piece)
            yield piece

    def skip(self, size: int) -> None:
        """Pass over bytes that are not counted."""
        lines = self.lines
        for _ in self.take(size):
            pass
        self.lines = lines


def _difference(expected: _Bytes, size: int, received: _Bytes) -> int | None:
    """Return at which byte `received` differs first from the next `size` bytes expected; both are read to the end."""
    at, first = 0, None
    for ours in expected.take(size):
        theirs = b"".join(received.take(len(ours)))
        if first is None and ours != theirs:
            pairs = enumerate(zip(ours, theirs, strict=False))
            first = at + next((n for n, (one, other) in pairs if one != other), len(theirs))
        at += len(ours)
    if first is None and not received.is_over:
        first = at
    while not received.is_over:
        deque(received.take(_READ), 0)
    return first


@dataclass(slots=True)
class _Expected:
    host: str
    length: int = 0
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))


class Comparison:
    """One partition, of which a span of the stream is compared with its files, up to what the store has received."""

    def __init__(
        self, wanted: ComparisonSettings, partition: int, store: Store, span: StreamSpan
    ) -> None:
        """Read nothing yet."""
        self._wanted = wanted
        self._partition = partition
        self._store = store
        self._span = span
        self._layout = Layout(wanted.path_template)

    def run(self, advance: Callable[[int], None]) -> ComparedPartition:
        """Compare; `advance` is told how many sequences were read. Raises OSError, `Damaged`, and what `LineReader` raises."""
        seen = self._snapshot()
        expected: dict[str, _Expected] = {}
        refused = 0
        naming = self._naming()
        for run in self._wanted.reader.span(ReplaySpan((self._partition,), (self._until(seen),))):
            refused += len(run.refused)
            for live, piece, lines in naming(run):
                if (one := expected.get(live)) is None:
                    one = expected[live] = _Expected(piece.host)
                one.length += len(lines)
                one.digest.update(lines)
            advance(run.passed)
        reports = (
            self._report(live, one.host)
            for live, one in sorted(expected.items())
            if not self._fits(seen.files.get(live, _File()), one)
        )
        return ComparedPartition(
            self._partition,
            len({one.host for one in expected.values()}),
            sum(one.length for one in expected.values()),
            refused,
            tuple(report for report in reports if report.difference or report.pruned),
        )

    def _snapshot(self, path: str = "") -> Snapshot:
        seen = snapshot(self._store, path)
        assert seen is not None, "something was received"
        return seen

    def _until(self, seen: Snapshot) -> StreamSpan:
        return replace(
            self._span, until=seen.until
        )  # which may be more than when the broker was asked

    def _naming(self) -> Callable[[LineRun], Iterator[tuple[str, Piece, bytes]]]:
        """Return what yields the live file of each piece, and its lines as they stand there; of hosts that moved none."""
        days = Days(named_zone(self._wanted.time_zone))
        names = Names(self._store, self._layout, days, self._partition)
        endings = Endings()

        def named(run: LineRun) -> Iterator[tuple[str, Piece, bytes]]:
            for piece in run.pieces:
                if piece.host not in self._wanted.moved:
                    file, is_own = piece.file or None, piece.file_id != ""
                    live = names.live_name(piece.host, file, piece.stored_at, is_own=is_own)
                    yield live, piece, endings.joined(live, piece)

        return named

    def _fits(self, file: _File, expected: _Expected) -> bool:
        """Whether the newest bytes are the expected ones, to the last."""
        digest = hashlib.blake2b(digest_size=16)
        try:
            parts = [(part, self._length(part)) for part in file.parts]
            if sum(length for _, length in parts) < expected.length:
                return False
            for part, older, length in _newest(parts, expected.length):
                received = _Bytes(part.pieces(self._wanted.output))
                received.skip(older)
                for piece in received.take(length - older):
                    digest.update(piece)
                if not received.is_over:
                    return False
        except FileNotFoundError:  # rotated meanwhile, or removed: read once more
            return False
        return digest.digest() == expected.digest.digest()

    def _length(self, part: _Part) -> int:
        if part.length is not None:
            return part.length
        return sum(map(len, part.pieces(self._wanted.output)))

    def _report(self, live: str, host: str) -> ComparedFile:
        """Return where a file differs; compared again while it is rotated, or its last batch undone, meanwhile."""
        for _ in range(_ATTEMPTS):
            before = self._snapshot(live)
            report = self._compared(live, host, before)
            after = self._snapshot(live)
            names = _names(after, live)
            is_same = names is not None and names == _names(before, live)
            if not report.difference or (is_same and after.until >= before.until):
                break
            time.sleep(_AGAIN)
        return report

    def _compared(self, live: str, host: str, seen: Snapshot) -> ComparedFile:
        file, output = seen.files.get(live, _File()), self._wanted.output
        parts = [(part, self._length_if_there(part)) for part in file.parts]
        size = sum(map(len, self._expected(live, host, seen)))
        absent = max(0, size - sum(length for _, length in parts))
        ours, received, difference = _Bytes(self._expected(live, host, seen)), 0, ""
        day = self._layout.date_of(live)
        is_pruned = file.is_pruned or (not file.parts and "" < day < seen.last_day)
        if is_pruned:
            ours.skip(absent)
        elif absent:
            difference = f"{parts[0][0].path if parts else live} at byte 0"
            deque(ours.take(absent), 0)
        for part, older, length in _newest(parts, size):
            theirs = _Bytes(_there(part.pieces(output)))
            theirs.skip(older)
            at = _difference(ours, length - older, theirs)
            received += theirs.lines
            if at is not None and not difference:
                difference = f"{part.path} at byte {older + at}"
        deque(ours.take(size), 0)
        pruned = absent if is_pruned else 0
        return ComparedFile(
            *(self._partition, host, live, size - pruned, pruned, ours.lines, received, difference)
        )

    def _length_if_there(self, part: _Part) -> int:
        try:
            return self._length(part)
        except FileNotFoundError:
            return 0

    def _expected(self, live: str, host: str, seen: Snapshot) -> Iterator[bytes]:
        """Yield what a file should have of the stream."""
        naming = self._naming()
        for run in self._wanted.reader.host(self._partition, host, self._until(seen)):
            for name, _, lines in naming(run):
                if name == live:
                    yield lines


def _newest(parts: list[tuple[_Part, int]], size: int) -> Iterator[tuple[_Part, int, int]]:
    """Yield the parts that hold the newest `size` bytes, with how many bytes of each are older, and its length."""
    skipped = max(0, sum(length for _, length in parts) - size)
    for part, length in parts:
        if skipped < length:
            yield part, skipped, length
        skipped = max(0, skipped - length)


def _there(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces of a file, none where it is not there."""
    try:
        yield from pieces
    except FileNotFoundError:
        return


def _names(seen: Snapshot, live: str) -> list[str] | None:
    """Return the names of a file's parts, None while these change."""
    file = seen.files.get(live, _File())
    return None if file.is_changing else [part.path for part in file.parts]
