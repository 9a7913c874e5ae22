"""`logreceiver verify`: compares received files with the stream, partition by partition, as far as their stores have received.

The store says before which message everything was received, and how many bytes each file has of it. The stream is read once
for all hosts, and only the length and the digest of what each file should have are kept. A file whose newest bytes have
another digest is compared with the stream once more, alone, byte by byte. Hosts with lines in several partitions are read one
by one, from all of these, and compared with the files of the partition that has them now. Reads only.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.text import format_count, printable
from nats_logship.app.units import format_size
from nats_logship.client import bucket
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_state import get_stream_state
from nats_logship.wire.endings import Endings
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.judging import Piece
from receiver.replay.replay import find_ranges, parse_moment_option, read_lines
from receiver.settings import StreamSettings
from receiver.storage.commit import find_first_undone
from receiver.storage.damage import Damaged
from receiver.storage.layout import Days, Layout
from receiver.storage.names import LivePaths
from receiver.storage.partition_folders import require_template
from receiver.storage.rotation import load_zone
from receiver.storage.store import Store, path_of
from receiver.verify.files import READ, Files, Part, ReceivedFile

_PROGRAM = "logreceiver verify"
_ATTEMPTS, _AGAIN = 20, 0.1  # for a file that is rotated or removed meanwhile, and seconds between


@dataclass(frozen=True, slots=True)
class DifferingFile:
    """A host's file that differs: `live` is its path below the output folder, `expected` and `received` count lines.

    `difference` is the file and the byte at which it differs first.
    """

    partition: int
    host: str
    live: str
    expected: int
    received: int
    difference: str


@dataclass(slots=True)
class VerifyReport:
    """What was compared: so many hosts, and bytes of their lines. `files` differ.

    `unclaimed` are partitions of which nothing was received into these folders yet. `moved` are hosts with lines in more than
    one partition that are left out: they are on the way from one to another, or plain clients write for them.
    """

    moved: list[str] = field(default_factory=list)
    hosts: int = 0
    size: int = 0
    unclaimed: list[int] = field(default_factory=list)
    files: list[DifferingFile] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether something was compared, and every expected line is in its place, or was removed to make room."""
        return self.hosts > 0 and not self.files

    def as_json(self) -> str:
        """Write it for programs."""
        return json.dumps({"well": not self.files, **asdict(self)}, indent=2)

    def as_text(self) -> str:
        """Write it for people: a line for each file that differs, and one for everything."""
        lines = [
            f"{one.live}: {format_count(one.expected, 'line', 'are')} expected, {one.received} are there; the first difference is in {one.difference}"
            for one in self.files
        ]
        verdict = "DIFFERENCES" if self.files else "all well"
        compared = (
            f"{verdict}: {format_count(self.hosts, 'host')}, {format_size(self.size)} compared"
        )
        lines.append(compared if self.hosts else "nothing was compared")
        if self.unclaimed:
            numbers = ", ".join(map(str, self.unclaimed))
            lines.append(f"not compared, as nothing was received here yet: partitions {numbers}")
        if self.moved:
            some = f"{format_count(len(self.moved), 'host')}, such as {', '.join(self.moved[:5])}"
            lines.append(
                f"not compared, as they are between partitions, or have lines of plain clients in several: {some}"
            )
        return "\n".join(map(printable, lines))


def verify(settings: StreamSettings) -> VerifyReport:
    """Compare and return what was found; raises OperatorError kinds, click.UsageError. Changes nothing anywhere."""
    output = settings.output.absolute()
    if not output.is_dir():
        raise ConfigurationError(f"there is no folder {output}; give the receiver's --output")
    require_template(settings.state.absolute(), settings.path_template)
    since = parse_moment_option(settings, "since", settings.since)
    find = partial(find_ranges, settings=settings, since=since)
    partitions, ranges = ask_broker(settings, _PROGRAM, find, ELECTION)
    moved = ask_broker(settings, _PROGRAM, lambda c: _hosts_that_moved(c, ranges), ELECTION)
    items = {number: ranges[number % len(ranges)] for number in partitions}
    report = VerifyReport()
    try:
        with ExitStack() as stack:
            _compare(settings, items, moved, report, stack)
    except Damaged as error:
        raise OperatorError(str(error)) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; run this as the receiver's user, where its folders are"
        ) from None
    return report


def _compare(
    settings: StreamSettings,
    items: Mapping[int, SequenceRange],
    moved: Mapping[str, Sequence[int]],
    report: VerifyReport,
    stack: ExitStack,
) -> None:
    """Compare partitions with what of the streams belongs to each."""
    received = {}
    for number, item in items.items():
        if (one := _received(settings, number, item, report, stack)) is None:
            report.unclaimed.append(number)
        else:
            received[number] = one
    for one in received.values():
        expected = one.expected(">", one.until)
        one.compare({live: file for live, file in expected.items() if file.host not in moved})
    for host, numbers in moved.items():
        if not _compare_moved(host, numbers, received):
            report.moved.append(host)


async def _hosts_that_moved(
    connection: Connection, ranges: Iterable[SequenceRange]
) -> dict[str, list[int]]:
    """Return the hosts of which the streams hold lines in more than one partition, with these partitions.

    A partition that holds one message of a host holds the claim by which it left.
    """
    partitions: dict[str, list[int]] = {}
    for stream in (one.stream for one in ranges):
        offset, total = 0, 1
        while offset < total:
            asked = {"subjects_filter": "logs.>", "offset": offset}
            answer = await connection.api(f"STREAM.INFO.{stream}", asked)
            counts = answer["state"].get("subjects") or {}
            for _, partition, host in (name.split(".", 2) for name, n in counts.items() if n > 1):
                partitions.setdefault(host, []).append(int(partition[1:]))
            offset, total = offset + max(1, len(counts)), answer.get("total", 0)
    return {host: numbers for host, numbers in sorted(partitions.items()) if len(numbers) > 1}


def _received(
    settings: StreamSettings,
    number: int,
    item: SequenceRange,
    report: VerifyReport,
    stack: ExitStack,
) -> "_Comparison | None":
    """Open the store of a partition; None where nothing of it was received here."""
    try:
        store = stack.enter_context(Store(path_of(settings.state.absolute(), number)))
    except FileNotFoundError:
        return None
    if (batch := store.read_batch()) is None:
        return None
    store.check_pages()
    stream = ask_broker(settings, _PROGRAM, lambda c: get_stream_state(c, item.stream), ELECTION)
    if batch.created not in {"", stream.created}:
        raise ConfigurationError(
            f"partition {number}: its files come from the stream of {batch.created}, this one is of "
            f"{stream.created}: there is nothing to compare them with"
        )
    files = Files(store, settings.output.absolute(), Layout(settings.path_template))
    return _Comparison(settings, number, files, item, batch.until, report)


def _compare_moved(host: str, numbers: Sequence[int], received: "dict[int, _Comparison]") -> bool:
    """Compare a host's files with its lines in all of these partitions; say whether that could be done."""
    owners = [one for one in received.values() if one.files.store.list_files_of(host)]
    if len(owners) != 1 or not received.keys() >= set(numbers):
        return False
    others = (received[number] for number in numbers if number != owners[0].partition)
    moved = replace(owners[0], left=tuple(one.range_of(host, one.until) for one in others))
    expected = moved.expected(host, moved.until)
    if is_own := all(one.is_own for one in expected.values()):
        moved.compare(expected)
    return is_own


@dataclass(slots=True)
class _Sum:
    """The lines of a file of a host, or what of them there is."""

    host: str
    length: int = 0
    lines: int = 0
    is_own: bool = True  # all from the host's shipper
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, data: bytes) -> None:
        self.length += len(data)
        self.lines += data.count(b"\n")
        self.digest.update(data)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One partition, of which a range of the stream is compared with its files, up to `until`, before which all was received.

    `left` are what its host has in other partitions, of which it has the files now.
    """

    settings: StreamSettings
    partition: int
    files: Files
    item: SequenceRange
    until: int
    report: VerifyReport
    left: tuple[SequenceRange, ...] = ()

    def range_of(self, host: str, until: int) -> SequenceRange:
        """Return where the partition has lines of a host, or of all, before a sequence."""
        return replace(self.item, subject=f"logs.p{self.partition}.{host}", until=until)

    def compare(self, expected: Mapping[str, _Sum]) -> None:
        """Compare files with what they should have; raises OSError, `Damaged`, and what `read_lines` raises."""
        self.report.hosts += len({one.host for one in expected.values()})
        self.report.size += sum(one.length for one in expected.values())
        for live, one in sorted(expected.items()):
            self._compare(live, one)

    def _lines(self, host: str, until: int) -> Iterator[tuple[str, Piece, bytes]]:
        """Yield lines of the stream with their live file and origin, as they stand there."""
        zone = load_zone(self.settings.time_zone)
        names = LivePaths(self.files.store, self.files.layout, Days(zone), self.partition)
        endings = Endings()
        for run in read_lines(self.settings, [self.range_of(host, until), *self.left]):
            for piece in run.pieces:
                file, is_own = piece.file or None, piece.file_id != ""
                live = names.choose(piece.host, file, piece.stored_at, is_own=is_own)
                yield live, piece, piece.joined(endings, live)

    def expected(self, host: str, until: int) -> dict[str, _Sum]:
        """Return what the stream has before a sequence of each live file of a host, or of all."""
        expected: dict[str, _Sum] = {}
        for live, piece, lines in self._lines(host, until):
            one = expected.setdefault(live, _Sum(piece.host))
            one.add(lines)
            one.is_own &= piece.file_id != ""
        return expected

    def _compare(self, live: str, expected: _Sum) -> None:
        """Report a file that differs: compared again it does so too, and neither file nor stream has changed meanwhile.

        A file may be rotated, or its last batch undone, and of a stream that is read lines may go that are not read yet.
        """
        host, until, undone = expected.host, self.until, ""
        report: DifferingFile | None = None
        seen: tuple[object, ...] = ()
        for _ in range(_ATTEMPTS):
            file, found = self.files.find(live, undone), _Sum(host)
            if report or file.until != until:
                until = file.until
                expected = self.expected(host, until).get(live, _Sum(host))
            for part, older in file.newest(expected.length):
                for piece in self.files.content(part, older):
                    found.add(piece)
            if found.digest.digest() == expected.digest.digest():
                return
            report = self._differing(live, file, expected, found.lines)
            before, seen = seen, (undone, file, expected.digest.digest())
            if report is None or before == seen:
                break
            undone = self._undone()
            time.sleep(_AGAIN)
        self.report.files += [report] if report else []

    def _undone(self) -> str:
        """Return the commit id of the last batch while that is not committed, as it may be half taken back; else nothing."""
        batch, key = self.files.store.read_batch(), offset_key(self.partition)
        assert batch is not None, "something was received"
        # that's fine: it counts as committed
        with suppress(OperatorError, UnreadableOffset, Damaged):
            read = partial(bucket.read, bucket=OFFSETS_BUCKET, key=key)
            entry = ask_broker(self.settings, _PROGRAM, read, ELECTION)
            offset = Offset.decode(entry.value) if entry else None
            if offset and find_first_undone(batch, offset, self.partition) <= batch.number:
                return batch.commit_id
        return ""

    def _differing(
        self, live: str, file: ReceivedFile, expected: _Sum, received: int
    ) -> DifferingFile | None:
        """Return how a file differs from the stream; None where it does not, but for older segments that are gone."""
        lines = (found[2] for found in self._lines(expected.host, file.until) if found[0] == live)
        take, pruned = _taker(lines), 0
        absent = max(0, expected.length - sum(part.length for part in file.parts))
        if absent and not file.is_pruned:
            difference = f"{[*file.parts, Part(live, 0)][0].path} at byte 0"
        else:
            pieces = range(0, absent, READ)
            pruned = sum(take(min(READ, absent - begin)).count(b"\n") for begin in pieces)
            difference = self._difference(take, file, expected.length)
        if not difference:
            return None
        about = (self.partition, expected.host, live)
        return DifferingFile(*about, expected.lines - pruned, received, difference)

    def _difference(self, take: Callable[[int], bytes], file: ReceivedFile, size: int) -> str:
        """Return where the newest bytes of a file are first not those that are to be taken, empty for nowhere."""
        for part, at in file.newest(size):
            for theirs in self.files.content(part, at):
                mine = take(min(len(theirs), part.length - at))
                if mine != theirs:
                    pairs = enumerate(zip(mine, theirs, strict=False))
                    same = next((n for n, (one, other) in pairs if one != other), len(mine))
                    return f"{part.path} at byte {at + same}"
                at += len(theirs)
            if at < part.length:
                return f"{part.path} at byte {at}"
        return ""


def _taker(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    """Return what takes the next so many bytes of all pieces, or what is left of them."""
    rest = bytearray()

    def take(size: int) -> bytes:
        while len(rest) < size and (piece := next(pieces, b"")):
            rest.extend(piece)
        taken = bytes(rest[: max(0, size)])
        del rest[: len(taken)]
        return taken

    return take
