"""`logbroker tail`: the last lines of hosts, or those since a moment, and then new ones."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import zstandard

from broker.inspect.matching import LineFilter, open_line_filter
from broker.inspect.message import StoredMessage
from broker.inspect.reader import MessageReader, find_sequence_at, follow
from broker.inspect.streams import list_streams
from nats_logship.app.selection import LineSelection
from nats_logship.app.text import printable
from nats_logship.app.timestamps import Moment
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.message import MalformedMessage, Section
from nats_logship.wire.records import Records, parse_records
from nats_logship.wire.subjects import host_filter, partition_filter

_FIRST_WINDOW = 32  # messages at the end of a stream that are searched for the last lines
_WIDER = 8  # each further search covers so many times more messages
_MOST_SEARCHED = 100_000  # messages, unless the broker selects those of one host
_MOST_JOINED = 500_000  # lines of a section: more are shown line by line
_DECOMPRESSOR = zstandard.ZstdDecompressor()
logger = logging.getLogger(__name__)


class TailPiece(NamedTuple):
    """Lines of one file of a host, from one message; `stored_at` is in nanoseconds since the epoch.

    `file_id` and `end` are those of their span; empty and 0 for the lines of another client.
    `records` are the lines as they belong together; None: each is alone.
    """

    host: str
    partition: int | None
    sequence: int
    stored_at: int
    file: str
    lines: bytes
    file_id: str = ""
    end: int = 0
    records: tuple[bytes, ...] | None = None

    def split(self) -> list[bytes]:
        """Return the records, each without its last newline; without records the lines."""
        if self.records is not None:
            return [record.removesuffix(b"\n") for record in self.records]
        return self.lines.removesuffix(b"\n").split(b"\n")

    def last(self, most: int) -> Iterator["TailPiece"]:
        """Yield the last records or lines, at most `most`, each as its own piece."""
        if self.records is not None:
            for record in self.records[-most:]:
                whole = record.removesuffix(b"\n") + b"\n"
                yield self._replace(lines=whole, records=(whole,))
            return
        ended = self.lines.endswith(b"\n")
        found = self.lines.rsplit(b"\n", most + ended)
        for line in found[-most - ended : len(found) - ended]:
            yield self._replace(lines=line + b"\n")


class Searched(NamedTuple):
    """Only so many of the last messages were searched; earlier ones may hold more such lines."""

    messages: int


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Which lines to show.

    Lines of the hosts and files of `selection`, in `partitions` (none: all), that match the regular
    expression `match` and were stored at `since` or later; the last `lines` of them, None meaning
    all. With `follow` also new lines. Records of several lines are shown and counted whole.
    """

    selection: LineSelection = field(default_factory=LineSelection)
    partitions: tuple[int, ...] = ()
    since: Moment | None = None
    lines: int | None = 10
    follow: bool = True
    match: str = ""

    @property
    def only_host(self) -> str | None:
        """The host, if exactly one is selected by its name."""
        hosts = self.selection.hosts
        return hosts[0] if len(hosts) == 1 and not set(hosts[0]) & set("*?[") else None

    def filters(self) -> list[str]:
        """Return the subjects that the broker selects; globs of hosts are matched here."""
        if host := self.only_host:
            return [f"logs.p{n}.{host}" for n in self.partitions] or [host_filter(host)]
        return list(map(partition_filter, self.partitions))

    async def select(
        self, messages: Iterable[StoredMessage], matching: LineFilter | None
    ) -> AsyncGenerator[TailPiece, None]:
        """Yield the wanted lines of messages, section by section."""
        wants_file = self.selection.wants_file
        for one in messages:
            files = [section.path for section in one.sections] or [""]
            if not (self.selection.wants_host(one.host) and any(map(wants_file, files))):
                continue
            for section, lines in _split(one):
                if not (lines and wants_file(section.path if section else "")):
                    continue
                if (found := await _choose(section, lines, matching)).lines:
                    yield _make_piece(one, section, found)


class _Chosen(NamedTuple):
    """The lines of a section that are shown, and their records."""

    lines: bytes
    records: tuple[bytes, ...] | None


async def _choose(section: Section | None, lines: bytes, matching: LineFilter | None) -> _Chosen:
    """Return the lines to show: whole records if a line of them matches."""
    records = parse_records(section.records) if section and section.records else None
    if records and lines.count(b"\n") > _MOST_JOINED:
        records = None
    ranges = await matching(lines) if matching else [(0, len(lines))]
    if records is None:
        return _Chosen(b"".join(lines[start:end] for start, end in ranges), None)
    # a stranger chose the expression: RE2 bounds its time, and nothing waits for it
    return await asyncio.to_thread(_choose_records, records, lines, ranges)


def _choose_records(records: Records, lines: bytes, ranges: Sequence[tuple[int, int]]) -> _Chosen:
    runs = [lines[start:end] for start, end in records.widen(lines, ranges)]
    return _Chosen(b"".join(runs), tuple(one for run in runs for one in records.split(run)))


def _make_piece(message: StoredMessage, section: Section | None, found: _Chosen) -> TailPiece:
    return TailPiece(
        host=message.host,
        partition=message.subject.partition if message.subject else None,
        sequence=message.sequence,
        stored_at=message.stored_at,
        file=section.path if section else "",
        lines=found.lines,
        file_id=section.span.file_id if section else "",
        end=section.span.end if section else 0,
        records=found.records,
    )


def _split(message: StoredMessage) -> list[tuple[Section | None, bytes]]:
    reason = message.trouble
    try:
        if not reason:
            return message.split_lines(_DECOMPRESSOR)
    except MalformedMessage as error:
        reason = str(error)
    logger.warning("message %d holds no lines: %s", message.sequence, printable(reason))
    return []


async def tail(
    connection: Connection, wanted: TailOptions
) -> AsyncGenerator[TailPiece | Searched, None]:
    """Yield the lines to show, and before them a `Searched` if not all messages were searched.

    The last lines are in the order of their storage. Lines since a sequence or a time are in order
    for each host, one stream after the other. After a lost connection no line is yielded twice or
    left out. Raises `OperatorError`, `ConnectionLost`, `Rejected`.
    """
    readers: dict[MessageReader, int] = {}
    newest: list[TailPiece] = []
    async with AsyncExitStack() as stack:
        pattern = wanted.match
        matching = await stack.enter_async_context(open_line_filter(pattern)) if pattern else None
        for name in await retry_until_answered(connection, list_streams, ELECTION):
            ends = await _find_ends(connection, name, wanted.since)
            if wanted.lines and ends.until > ends.first:
                lines, searched = await _find_newest(connection, ends, wanted, matching)
                newest += lines
                if searched:
                    yield Searched(searched)
            start = at_sequence(ends.first if wanted.lines is None else ends.until)
            reader = MessageReader(connection, name, start, wanted.filters())
            stack.push_async_callback(reader.close)
            readers[reader] = ends.until - 1
        newest.sort(key=lambda piece: piece.stored_at)
        for piece in newest[-(wanted.lines or 1) :]:
            yield piece
        async for some in follow(list(readers)) if wanted.follow else _read_stored(readers):
            async for piece in wanted.select(some, matching):
                yield piece


class _Ends(NamedTuple):
    """Where to read a stream: the half-open range of sequences `[first, until)`."""

    stream: str
    first: int
    until: int


async def _find_ends(connection: Connection, stream: str, since: Moment | None) -> _Ends:
    """Return where to read a stream from a moment on, by default from its beginning."""
    info = partial(Connection.api, name=f"STREAM.INFO.{stream}")
    state = (await retry_until_answered(connection, info, ELECTION))["state"]
    until = state["last_seq"] + 1
    ask = partial(find_sequence_at, stream=stream, moment=since or 0, end=until)
    first = max(state["first_seq"], await retry_until_answered(connection, ask, ELECTION))
    return _Ends(stream, first, until)


async def _read_stored(
    readers: dict[MessageReader, int],
) -> AsyncGenerator[list[StoredMessage], None]:
    """Yield the messages of the streams up to the ends given."""
    for reader, last in readers.items():
        async for message in reader.read_all(last):
            yield [message]


async def _find_newest(
    connection: Connection, ends: _Ends, wanted: TailOptions, matching: LineFilter | None
) -> tuple[list[TailPiece], int]:
    """Return the last lines of a range, and how many messages were searched.

    The search starts at the end and widens; the number is 0 if it covered the whole range.
    """
    window, most = _FIRST_WINDOW, wanted.lines or 1
    kept: deque[TailPiece] = deque(maxlen=most)
    while True:
        begin = max(ends.first, ends.until - window)
        reader = MessageReader(connection, ends.stream, at_sequence(begin), wanted.filters())
        kept.clear()
        async for message in reader.read_all(ends.until - 1):
            async for piece in wanted.select([message], matching):
                kept.extend(piece.last(most))
        if begin == ends.first or len(kept) == most:
            return list(kept), 0
        if window > _MOST_SEARCHED and not wanted.only_host:
            return list(kept), window
        window *= _WIDER


def prefix_lines(host: str, lines: bytes) -> bytes:
    """Return lines with `host: ` before each."""
    if not lines:
        return lines
    # the host is from the subject, which any client may have chosen
    prefix = f"{host}: ".encode("utf-8", "surrogateescape")
    return b"".join(prefix + line + b"\n" for line in lines.removesuffix(b"\n").split(b"\n"))
