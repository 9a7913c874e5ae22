"""`logbroker tail`: the lines of all hosts as they come, from a place in the streams on. Changes nothing."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

import zstandard

from broker.app.printable import printable
from broker.app.selection import Selection
from broker.app.units import Moment, format_size
from broker.client.connection import ELECTION, Connection, until_answered
from broker.inspect.ask import streams_of
from broker.inspect.lines import last_lines
from broker.inspect.message import StoredMessage, read_message
from broker.inspect.reader import Delivered, Start, StreamReader, at_sequence, at_time, follow
from broker.wire.message import MalformedMessage
from broker.wire.subjects import host_filter, partition_filter

__all__ = ["Piece", "Wanted", "tail"]

_FIRST_WINDOW, _WIDER = (
    512,
    8,
)  # messages that are searched for the last lines, and by how much more next
_MOST_SEARCHED = 500_000  # messages
_AT_A_TIME = 4 * 1024 * 1024  # bytes of lines
_MOST_KEPT = 64 * 1024 * 1024  # bytes of the last lines, which wait in memory until all are read
_OVERHEAD = 200  # bytes that Python takes for a piece beside its lines and names
_DECOMPRESSOR = zstandard.ZstdDecompressor()
logger = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Lines of one file of a host, from one message; `stored_at` is in nanoseconds since the epoch."""

    host: str
    partition: int | None
    sequence: int
    stored_at: int
    file: str
    lines: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: of these hosts and files, partitions (none: all), from `since` on, else the last `lines`.

    `follow`: those to come as well.
    """

    selection: Selection = field(default_factory=Selection)
    partitions: tuple[int, ...] = ()
    since: Moment | None = None
    lines: int = 10
    follow: bool = True

    @property
    def only_host(self) -> str | None:
        """The one host that is asked for by its name."""
        hosts = self.selection.hosts
        return hosts[0] if len(hosts) == 1 and not set(hosts[0]) & set("*?[") else None

    def filters(self) -> list[str]:
        """Return what the broker selects; globs are matched here."""
        host = self.only_host
        if self.partitions:
            return [
                f"logs.p{number}.{host}" if host else partition_filter(number)
                for number in self.partitions
            ]
        return [host_filter(host)] if host else []

    def has(self, message: StoredMessage) -> bool:
        """Whether lines of a message are wanted."""
        files = tuple(section.path for section in message.sections) or ("",)
        return self.selection.wants_host(message.host) and any(
            map(self.selection.wants_file, files)
        )

    def lines_in(self, message: StoredMessage) -> int:
        """Return how many lines of a message are wanted, as its headers say; another client's message counts as one."""
        if not self.has(message):
            return 0
        if message.origin is None:
            return 1
        return sum(one.lines for one in message.sections if self.selection.wants_file(one.path))

    def pieces(self, delivered: Iterable[Delivered]) -> Iterator[Piece]:
        """Yield the wanted lines of messages, section by section."""
        for message in filter(self.has, map(_read, delivered)):
            for file, lines in _parts(message):
                if lines and self.selection.wants_file(file):
                    partition = message.subject.partition if message.subject else None
                    place = message.sequence, message.stored_at
                    yield Piece(message.host, partition, *place, file, lines)


async def tail(connection: Connection, wanted: Wanted) -> AsyncGenerator[list[Piece], None]:
    """Yield the lines to be shown, some MiB at a time; raises `OperatorError`, `ConnectionLost` or `Rejected`.

    A broker that goes away later is waited for: no line is shown twice, none is left out. The last lines come in the order
    of their storage; from a place on, lines of a host are in their order, and streams are shown as they come.
    """
    opened = await _open(connection, wanted)
    try:
        if wanted.since is None and wanted.lines:
            yield await _newest(connection, opened, wanted)
        async for batch in _batches(connection, opened, wanted):
            for some in _chunks(wanted.pieces(batch)):
                yield some
    finally:
        for reader, _ in opened:
            await reader.close()


async def _open(connection: Connection, wanted: Wanted) -> list[tuple[StreamReader, int]]:
    names = await until_answered(connection, streams_of, ELECTION)
    openings = [_Opening(name, wanted) for name in names]
    return [await until_answered(connection, one.open, ELECTION) for one in openings]


async def _batches(
    connection: Connection, opened: Sequence[tuple[StreamReader, int]], wanted: Wanted
) -> AsyncGenerator[list[Delivered], None]:
    """Yield what is stored from a place on, or what comes."""
    if wanted.follow:
        async for batch in follow([reader for reader, _ in opened]):
            yield batch
    elif wanted.since is not None:
        async for batch in _stored(connection, opened):
            yield batch


async def _stored(
    connection: Connection, opened: Iterable[tuple[StreamReader, int]]
) -> AsyncGenerator[list[Delivered], None]:
    """Yield what streams hold up to a sequence, and perhaps a little more."""
    for reader, last in opened:
        more = partial(_more, reader, last)
        while batch := await until_answered(connection, more, ELECTION):
            yield batch


async def _more(reader: StreamReader, last: int, _connection: Connection) -> list[Delivered]:
    return await reader.read_until(last)


async def _newest(
    connection: Connection, opened: Sequence[tuple[StreamReader, int]], wanted: Wanted
) -> list[Piece]:
    """Return the last lines of all streams."""
    found: list[Piece] = []
    for one in opened:
        of_stream = _Newest(wanted.lines, _MOST_KEPT // len(opened))
        async for batch in _stored(connection, [one]):
            for piece in wanted.pieces(batch):
                of_stream.add(piece)
        found += of_stream.pieces()
    of_all = _Newest(wanted.lines, _MOST_KEPT)
    for piece in sorted(found, key=lambda one: one.stored_at):
        of_all.add(piece)
    return of_all.pieces()


def _chunks(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield pieces some MiB at a time: lines take much more than they did compressed."""
    chunk: list[Piece] = []
    size = 0
    for piece in pieces:
        chunk.append(piece)
        size += len(piece.lines)
        if size >= _AT_A_TIME:
            yield chunk
            chunk, size = [], 0
    yield chunk


@dataclass(frozen=True, slots=True)
class _Opening:
    stream: str
    wanted: Wanted

    async def open(self, connection: Connection) -> tuple[StreamReader, int]:
        """Return a reader that begins with the first line that is wanted, and the last sequence that is there."""
        state = (await connection.api(f"STREAM.INFO.{self.stream}"))["state"]
        start = await self._start(connection, state)
        reader = StreamReader(connection, self.stream, start, self.wanted.filters())
        return reader, state["last_seq"]

    async def _start(self, connection: Connection, state: dict[str, int]) -> Start:
        match self.wanted.since:
            case datetime() as time:
                return at_time(time)
            case int(sequence):
                return at_sequence(sequence)
            case None if self.wanted.lines:
                return at_sequence(await self._place_of_last(connection, state))
            case None:
                return at_sequence(state["last_seq"] + 1)

    async def _place_of_last(self, connection: Connection, state: dict[str, int]) -> int:
        """Return a sequence from which on there are the last lines, by the headers alone, searched further and further back."""
        first, last, window = state["first_seq"], state["last_seq"], _FIRST_WINDOW
        while True:
            begin = max(first, last + 1 - window)
            places: deque[tuple[int, int]] = deque()
            reader = StreamReader(
                connection,
                self.stream,
                at_sequence(begin),
                self.wanted.filters(),
                headers_only=True,
            )
            total = 0
            async for delivered in reader.read_all(last):
                message = _read(delivered)
                if lines := self.wanted.lines_in(message):
                    places.append((message.sequence, lines))
                    total += lines
                while places and total - places[0][1] >= self.wanted.lines:
                    total -= places.popleft()[1]
            is_cut = begin > first and window > _MOST_SEARCHED
            if begin == first or total >= self.wanted.lines or is_cut:
                if is_cut and total < self.wanted.lines:
                    logger.warning("only the last %d messages were searched; see --since", window)
                return places[0][0] if places else last + 1
            window *= _WIDER


def _read(delivered: Delivered) -> StoredMessage:
    delivery, message = delivered
    return read_message(
        message.subject,
        delivery.sequence,
        delivery.stored_at,
        message.headers or {},
        message.data,
    )


def _parts(message: StoredMessage) -> list[tuple[str, bytes]]:
    try:
        if not message.trouble:
            return message.parts(_DECOMPRESSOR)
        reason = message.trouble
    except MalformedMessage as error:
        reason = str(error)
    logger.warning("message %d holds no lines: %s", message.sequence, printable(reason))
    return []


def _size_of(piece: Piece) -> int:
    return _OVERHEAD + len(piece.host) + len(piece.file) + len(piece.lines)


class _Newest:
    """The last pieces of all that were added, as many as the lines need; headers may claim any number of lines."""

    def __init__(self, most: int, size: int) -> None:
        self._most, self._most_size = most, size
        self._pieces: deque[tuple[Piece, int]] = deque()
        self._lines = self._size = 0
        self._is_cut = False

    def add(self, piece: Piece) -> None:
        cut = piece._replace(lines=last_lines(piece.lines, self._most))
        if not cut.lines:
            return
        count = cut.lines.count(b"\n")
        self._pieces.append((cut, count))
        self._lines += count
        self._size += _size_of(cut)
        while self._lines - self._pieces[0][1] >= self._most:
            self._drop_oldest()
        while self._size > self._most_size:
            self._drop_oldest()
            self._is_cut = True

    def _drop_oldest(self) -> None:
        piece, count = self._pieces.popleft()
        self._lines -= count
        self._size -= _size_of(piece)

    def pieces(self) -> list[Piece]:
        """Return them, the oldest first, with no more lines than are asked for; logs where there are fewer."""
        if self._is_cut and self._lines < self._most:
            size = format_size(self._most_size)
            logger.warning("only the last %s of lines are shown; see --since", size)
        left, kept = self._most, []
        for piece, _ in reversed(self._pieces):
            if left <= 0:
                break
            lines = last_lines(piece.lines, left)
            left -= lines.count(b"\n")
            kept.append(piece._replace(lines=lines))
        return kept[::-1]
