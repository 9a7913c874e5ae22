"""`logreceiver verify`: compares received files with the stream, partition by partition, as far as their stores have received.

The store says before which message everything was received, and how many bytes each file has of it. The stream is read once
for all hosts, and only the length and the digest of what each file should have are kept. A file whose newest bytes have
another digest is compared with the stream once more, alone, byte by byte. Reads only.
"""

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import zstandard

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.progress import progress
from broker.app.selection import LineSelection
from broker.app.units import format_size
from broker.app.untrusted import printable
from broker.client.connection import Connection
from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import (
    LineReader,
    LineRun,
    ReplaySpan,
    StreamSpan,
    find_span,
    hosts_that_moved,
    moment_of,
)
from receiver.settings import VerifySettings
from receiver.status.status import ask
from receiver.storage.disk import opened
from receiver.storage.folders import within
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.position import Damaged, StoredBatch
from receiver.storage.retention import compressed_form
from receiver.storage.store import Store, path_of
from receiver.zones import named_zone

__all__ = ["ComparedFile", "ComparedPartition", "VerifyReport", "verify"]

_MOST_NAMED = 5  # hosts
_READ = 1024 * 1024
_ATTEMPTS, _AGAIN = 20, 0.1  # for a file that is rotated or removed meanwhile, and seconds between


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

    def as_text(self) -> Iterator[str]:
        """Yield what there is to say to people."""
        if self.difference:
            yield (
                f"{self.live}: {self.expected} lines are expected, {self.received} are there; the first difference is in "
                f"{self.difference}"
            )
        if self.pruned:
            yield f"{self.live}: pruned: the oldest {self.pruned} bytes are no longer kept"


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """A partition that was compared; `size` is in bytes, `refused` counts messages that hold no lines."""

    partition: int
    hosts: int
    size: int
    refused: int
    files: tuple[ComparedFile, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All partitions that were compared; `unclaimed` are those of which nothing was received into these folders yet.

    `moved` are the hosts in more than one partition, which are left out: a partition does not know what others have
    written to their files.
    """

    compared: tuple[ComparedPartition, ...]
    unclaimed: tuple[int, ...]
    moved: frozenset[str]

    @property
    def is_well(self) -> bool:
        """Whether something was compared, and every expected line is in its place, or was removed to make room."""
        return self._hosts > 0 and not any(file.difference for file in self._files)

    @property
    def _hosts(self) -> int:
        return sum(one.hosts for one in self.compared)

    @property
    def _files(self) -> list[ComparedFile]:
        return [file for one in self.compared for file in one.files]

    def as_json(self) -> str:
        """Write it for programs: sizes in bytes, files that differ or hold less than the stream."""
        document = {
            "well": not any(file.difference for file in self._files),
            "hosts_compared": self._hosts,
            "bytes": sum(one.size for one in self.compared),
            "set_aside": sum(one.refused for one in self.compared),
            "unclaimed": self.unclaimed,
            "moved": sorted(self.moved),
            "files": [asdict(file) for file in self._files],
        }
        return json.dumps(document, indent=2)

    def as_text(self) -> str:
        """Write it for people: a line for each file that differs, and one for everything."""
        lines = [line for file in self._files for line in file.as_text()]
        if self._hosts:
            size = format_size(sum(one.size for one in self.compared))
            verdict = "all well" if self.is_well else "DIFFERENCES"
            lines.append(f"{verdict}: {self._hosts} hosts, {size} compared")
        else:
            lines.append("nothing was compared")
        if self.unclaimed:
            numbers = ", ".join(map(str, self.unclaimed))
            lines.append(
                f"not compared, as nothing of them was received here yet: partitions {numbers}"
            )
        if self.moved:
            some = ", ".join(sorted(self.moved)[:_MOST_NAMED])
            lines.append(
                "not compared, as the stream has their lines in more than one partition: "
                f"{len(self.moved)} hosts, such as {some}"
            )
        return "\n".join(map(printable, lines))


def verify(settings: VerifySettings) -> VerifyReport:
    """Compare and return what was found; raises OperatorError kinds, click.UsageError. Changes nothing anywhere."""
    output = settings.output.absolute()
    if not output.is_dir():
        raise ConfigurationError(f"there is no folder {output}; give the receiver's --output")
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    since = moment_of("since", settings.since, now, settings.time_zone)

    async def find(connection: Connection) -> tuple[ReplaySpan, dict[str, str], frozenset[str]]:
        span = await find_span(connection, settings.numbers, since)
        infos = {
            one.stream: await connection.api(f"STREAM.INFO.{one.stream}") for one in span.streams
        }
        created = {name: str(info["created"]) for name, info in infos.items()}
        return span, created, await hosts_that_moved(connection, created)

    span, created, moved = ask(settings, "logreceiver verify", find)
    try:
        return _compared(settings, span, created, moved)
    except Damaged as error:
        raise OperatorError(str(error)) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; run this as the receiver's user, where its folders are"
        ) from None


def _compared(
    settings: VerifySettings, span: ReplaySpan, created: dict[str, str], moved: frozenset[str]
) -> VerifyReport:
    begun = []
    with ExitStack() as stack:
        for number in span.partitions:
            stream = span.streams[number % len(span.streams)]
            with suppress(FileNotFoundError):
                store = stack.enter_context(Store(path_of(settings.state.absolute(), number)))
                if batch := store.batch():
                    _require_same(number, batch, created[stream.stream])
                    begun.append(_Comparison(settings, moved, number, store, stream))
        size = span.length * len(begun) // len(span.streams)
        advance = stack.enter_context(progress("comparing", size))
        compared = tuple(comparison.run(advance) for comparison in begun)
    unclaimed = set(span.partitions) - {one.partition for one in compared}
    return VerifyReport(compared, tuple(sorted(unclaimed)), moved)


def _require_same(partition: int, batch: StoredBatch, created: str) -> None:
    if batch.created not in {"", created}:
        raise ConfigurationError(
            f"partition {partition}: its files come from the stream of {batch.created}, this one is of "
            f"{created}: there is nothing to compare them with"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A live file, or a segment that it was closed as, of `length` bytes of lines, None where nobody has counted them."""

    path: str
    length: int | None
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class _File:
    """A live file with its closed segments, oldest first, by a store that has all messages before `until`.

    Where it `is_pruned`, older segments are no longer kept. While it `is_changing`, a batch that is not stored yet closes it.
    """

    until: int
    parts: tuple[_Part, ...] = ()
    is_pruned: bool = False
    is_changing: bool = False


def _file_in(store: Store, layout: Layout, live: str) -> _File:
    """Return what a store has of a live file; raises OSError, `Damaged`."""
    with store.unchanged():
        batch = store.batch()
        rows = store.files("path = ?", live)
        segments = store.segments("live = ?", live)
        last_day = str(store.rows("SELECT coalesce(max(day), '') FROM files")[0][0])
    assert batch is not None, "something was received"
    following = rows[0].number if rows else 1
    closed = [one for one in segments if one.batch <= batch.number]
    # a segment that has its own name still is the newest of them
    numbers = {one.path: one.number if one.path != live else following for one in closed}
    closed.sort(key=lambda one: numbers[one.path])
    parts = [_Part(one.path, one.length) for one in closed]
    if rows and live not in numbers:
        parts.append(_Part(live, rows[0].length, is_live=True))
    oldest = min((number for path, number in numbers.items() if path != live), default=following)
    is_pruned = oldest > 1 or (not parts and "" < layout.date_of(live) < last_day)
    return _File(batch.until, tuple(parts), is_pruned, len(closed) < len(segments))


def _content(output: Path, part: _Part, skip: int = 0) -> Iterator[bytes]:
    """Yield the lines of a part but the first `skip` bytes, decompressed; of a live file what the store has, nothing where it is gone."""
    left = part.length if part.is_live and part.length is not None else None
    with suppress(FileNotFoundError), within(output, part.path) as path, _open(path) as file:
        while piece := file.read(_READ if left is None else min(_READ, left)):
            left = None if left is None else left - len(piece)
            kept = piece[skip:]
            skip -= len(piece) - len(kept)
            if kept:
                yield kept


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


class _Lines:
    """Pieces of bytes, of which so many are taken at a time; `count` is how many newlines were among them."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""
        self.count = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, or what is left."""
        taken = []
        while size > 0 and (piece := self._rest or next(self._pieces, b"")):
            taken.append(piece[:size])
            self._rest = piece[size:]
            size -= len(taken[-1])
        whole = b"".join(taken)
        self.count += whole.count(b"\n")
        return whole

    def skip(self, size: int) -> None:
        """Pass over bytes, piece by piece."""
        while size > 0 and (piece := self.take(min(size, _READ))):
            size -= len(piece)


@dataclass(slots=True)
class _Expected:
    host: str
    length: int = 0
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))


class _Comparison:
    """One partition, of which a span of the stream is compared with its files, up to what the store has received."""

    def __init__(
        self,
        settings: VerifySettings,
        moved: frozenset[str],
        partition: int,
        store: Store,
        span: StreamSpan,
    ) -> None:
        self._moved = moved
        self._partition = partition
        self._store = store
        self._span = span
        self._output = settings.output.absolute()
        self._layout = Layout(settings.path_template)
        self._zone = named_zone(settings.time_zone)
        self._reader = LineReader(settings.server, settings.access, LineSelection(settings.host))

    def run(self, advance: Callable[[int], None]) -> ComparedPartition:
        """Compare; `advance` is told how many sequences were read. Raises OSError, `Damaged`, and what `LineReader` raises."""
        batch = self._store.batch()
        assert batch is not None, "something was received"
        expected: dict[str, _Expected] = {}
        refused, named = 0, self._naming()
        # the store may have more by now than there was when the broker was asked
        span = ReplaySpan((self._partition,), (replace(self._span, until=batch.until),))
        for run in self._reader.span(span, advance):
            refused += len(run.refused)
            for live, piece, lines in named(run):
                if (one := expected.get(live)) is None:
                    one = expected[live] = _Expected(piece.host)
                one.length += len(lines)
                one.digest.update(lines)
        files = [
            self._report(live, one.host)
            for live, one in sorted(expected.items())
            if not self._fits(live, one)
        ]
        return ComparedPartition(
            self._partition,
            len({one.host for one in expected.values()}),
            sum(one.length for one in expected.values()),
            refused,
            tuple(file for file in files if file.difference or file.pruned),
        )

    def _naming(self) -> Callable[[LineRun], Iterator[tuple[str, Piece, bytes]]]:
        """Return what yields the live file of each piece, and its lines as they stand there; of hosts that moved none."""
        names = Names(self._store, self._layout, Days(self._zone), self._partition)
        endings = Endings()

        def named(run: LineRun) -> Iterator[tuple[str, Piece, bytes]]:
            for piece in run.pieces:
                if piece.host not in self._moved:
                    file, is_own = piece.file or None, piece.file_id != ""
                    live = names.live_name(piece.host, file, piece.stored_at, is_own=is_own)
                    yield live, piece, endings.joined(live, piece)

        return named

    def _fits(self, live: str, expected: _Expected) -> bool:
        """Whether the newest bytes of a file are the expected ones, to the last."""
        parts = self._measured(_file_in(self._store, self._layout, live))
        if sum(length for _, length in parts) < expected.length:
            return False
        digest = hashlib.blake2b(digest_size=16)
        for part, older, length in _newest(parts, expected.length):
            size = 0
            for piece in _content(self._output, part, older):
                digest.update(piece)
                size += len(piece)
            if size != length - older:
                return False
        return digest.digest() == expected.digest.digest()

    def _measured(self, file: _File) -> list[tuple[_Part, int]]:
        return [
            (
                part,
                sum(map(len, _content(self._output, part))) if part.length is None else part.length,
            )
            for part in file.parts
        ]

    def _report(self, live: str, host: str) -> ComparedFile:
        """Return where a file differs; compared again while it is rotated, or its last batch undone, meanwhile."""
        for _ in range(_ATTEMPTS):
            before = _file_in(self._store, self._layout, live)
            report = self._compared(live, host, before)
            after = _file_in(self._store, self._layout, live)
            paths, now = ([part.path for part in file.parts] for file in (before, after))
            is_same = paths == now and not before.is_changing and not after.is_changing
            if not report.difference or (is_same and after.until >= before.until):
                break
            time.sleep(_AGAIN)
        return report

    def _compared(self, live: str, host: str, file: _File) -> ComparedFile:
        size = sum(map(len, self._expected(live, host, file.until)))
        parts = self._measured(file)
        absent = max(0, size - sum(length for _, length in parts))
        ours, received, difference = _Lines(self._expected(live, host, file.until)), 0, ""
        ours.skip(absent)
        if file.is_pruned:
            ours.count = 0
        elif absent:
            difference = f"{parts[0][0].path if parts else live} at byte 0"
        for part, older, length in _newest(parts, size):
            at, found = older, None
            for theirs in _content(self._output, part, older):
                mine = ours.take(min(len(theirs), length - at))
                if found is None and mine != theirs:
                    pairs = enumerate(zip(mine, theirs, strict=False))
                    same = next((n for n, (one, other) in pairs if one != other), len(mine))
                    found = at + same
                received += theirs.count(b"\n")
                at += len(theirs)
            if at < length:
                found = at if found is None else found
                ours.skip(length - at)
            if found is not None:
                difference = difference or f"{part.path} at byte {found}"
        pruned = absent if file.is_pruned else 0
        return ComparedFile(
            *(self._partition, host, live, size - pruned, pruned, ours.count, received, difference)
        )

    def _expected(self, live: str, host: str, until: int) -> Iterator[bytes]:
        """Yield what a file should have of the stream."""
        named = self._naming()
        for run in self._reader.host(self._partition, host, replace(self._span, until=until)):
            for name, _, lines in named(run):
                if name == live:
                    yield lines


def _newest(parts: list[tuple[_Part, int]], size: int) -> Iterator[tuple[_Part, int, int]]:
    """Yield the parts that hold the newest `size` bytes, with how many bytes of each are older, and its length."""
    skipped = max(0, sum(length for _, length in parts) - size)
    for part, length in parts:
        if skipped < length:
            yield part, skipped, length
        skipped = max(0, skipped - length)
