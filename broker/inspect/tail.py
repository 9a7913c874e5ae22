"""`logbroker tail`: the lines of all hosts as they come, from a place in the streams on. Changes nothing."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

import zstandard

from broker.app.selection import LineSelection
from broker.app.units import Moment
from broker.app.untrusted import printable
from broker.client.connection import ELECTION, Connection, until_answered
from broker.inspect.ask import streams_of
from broker.inspect.message import StoredMessage, safe
from broker.inspect.reader import MessageReader, at_sequence, at_time, follow
from broker.wire.message import MalformedMessage
from broker.wire.subjects import host_filter, partition_filter

__all__ = ["TailOptions", "TailPiece", "as_shown", "last_lines", "tail"]

_FIRST_WINDOW = 512  # messages that are searched for the last lines, and
_WIDER = 8  # times as many next
_MOST_SEARCHED = 500_000  # messages
_AT_A_TIME = 4 * 1024 * 1024  # bytes of lines
_DECOMPRESSOR = zstandard.ZstdDecompressor()
logger = logging.getLogger(__name__)


class TailPiece(NamedTuple):
    """Lines of one file of a host, from one message; `stored_at` is in nanoseconds since the epoch."""

    host: str
    partition: int | None
    sequence: int
    stored_at: int
    file: str
    lines: bytes


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Which lines: of these hosts and files, partitions (none: all), from `since` on, else the last `lines`.

    `follow`: those to come as well.
    """

    selection: LineSelection = field(default_factory=LineSelection)
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
            return message.line_count
        return sum(one.lines for one in message.sections if self.selection.wants_file(one.path))

    def pieces(self, messages: Iterable[StoredMessage]) -> Iterator[TailPiece]:
        """Yield the wanted lines of messages, section by section."""
        for message in filter(self.has, messages):
            for file, lines in _parts(message):
                if lines and self.selection.wants_file(file):
                    partition = message.subject.partition if message.subject else None
                    place = message.sequence, message.stored_at
                    yield TailPiece(message.host, partition, *place, file, lines)


async def tail(
    connection: Connection, wanted: TailOptions
) -> AsyncGenerator[list[TailPiece], None]:
    """Yield the lines to be shown, some MiB at a time; raises `OperatorError`, `ConnectionLost` or `Rejected`.

    A broker that goes away later is waited for: no line is shown twice, none is left out. The last lines come in the order
    of their storage; from a place on, lines of a host are in their order, and streams are shown as they come.
    """
    names = await until_answered(connection, streams_of, ELECTION)
    opens = [partial(_open, stream=name, wanted=wanted) for name in names]
    opened = [await until_answered(connection, one, ELECTION) for one in opens]
    try:
        if wanted.since is None and wanted.lines:
            newest: list[TailPiece] = []
            for one in opened:
                newest += await _newest(connection, one, wanted)
            newest.sort(key=lambda piece: piece.stored_at)
            yield _last(newest, wanted.lines)
        if wanted.follow:
            batches = follow([reader for reader, _ in opened])
        else:
            batches = _stored(connection, opened if wanted.since is not None else ())
        async for batch in batches:
            for some in _chunks(wanted.pieces(batch)):
                yield some
    finally:
        for reader, _ in opened:
            await reader.close()


async def _stored(
    connection: Connection, opened: Iterable[tuple[MessageReader, int]]
) -> AsyncGenerator[list[StoredMessage], None]:
    """Yield what streams hold up to a sequence, and perhaps a little more."""
    for reader, last in opened:
        more = partial(_more, reader, last)
        while batch := await until_answered(connection, more, ELECTION):
            yield batch


async def _more(reader: MessageReader, last: int, _connection: Connection) -> list[StoredMessage]:
    return await reader.read_until(last)


async def _newest(
    connection: Connection, opened: tuple[MessageReader, int], wanted: TailOptions
) -> list[TailPiece]:
    """Return the last pieces of a stream that hold so many lines; headers, by which it was opened, may claim any number."""
    kept: deque[tuple[TailPiece, int]] = deque()
    lines = 0
    async for batch in _stored(connection, [opened]):
        for piece in wanted.pieces(batch):
            cut = piece._replace(lines=last_lines(piece.lines, wanted.lines))
            kept.append((cut, cut.lines.count(b"\n")))
            lines += kept[-1][1]
            while lines - kept[0][1] >= wanted.lines or len(kept) > wanted.lines:
                lines -= kept.popleft()[1]
    return [piece for piece, _ in kept]


def _last(pieces: Sequence[TailPiece], most: int) -> list[TailPiece]:
    """Return the last lines of pieces."""
    kept: list[TailPiece] = []
    for piece in reversed(pieces):
        if most <= 0:
            break
        kept.append(piece._replace(lines=last_lines(piece.lines, most)))
        most -= kept[-1].lines.count(b"\n")
    return kept[::-1]


def _chunks(pieces: Iterable[TailPiece]) -> Iterator[list[TailPiece]]:
    """Yield pieces some MiB at a time: lines take much more than they did compressed."""
    chunk: list[TailPiece] = []
    size = 0
    for piece in pieces:
        chunk.append(piece)
        size += len(piece.lines)
        if size >= _AT_A_TIME:
            yield chunk
            chunk, size = [], 0
    yield chunk


async def _open(
    connection: Connection, *, stream: str, wanted: TailOptions
) -> tuple[MessageReader, int]:
    """Return a reader that begins with the first line that is wanted, and the last sequence that is there."""
    state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    first, last = state["first_seq"], state["last_seq"]
    match wanted.since:
        case datetime() as time:
            start = at_time(time)
        case int(sequence):
            start = at_sequence(sequence)
        case None:
            start = at_sequence(await _place_of_last(connection, stream, wanted, first, last))
    return MessageReader(connection, stream, start, wanted.filters()), last


async def _place_of_last(
    connection: Connection, stream: str, wanted: TailOptions, first: int, last: int
) -> int:
    """Return a sequence from which on there are the last lines, by the headers alone, searched further and further back."""
    window = _FIRST_WINDOW
    while wanted.lines:
        begin = max(first, last + 1 - window)
        start, filters = at_sequence(begin), wanted.filters()
        places: deque[tuple[int, int]] = deque()
        lines = 0
        reader = MessageReader(connection, stream, start, filters, headers_only=True)
        async for message in reader.read_all(last):
            if found := wanted.lines_in(message):
                places.append((message.sequence, found))
                lines += found
            while places and lines - places[0][1] >= wanted.lines:
                lines -= places.popleft()[1]
        is_enough = begin == first or lines >= wanted.lines
        if not is_enough and window > _MOST_SEARCHED:
            logger.warning("only the last %d messages were searched; see --since", window)
            is_enough = True
        if is_enough:
            return places[0][0] if places else last + 1
        window *= _WIDER
    return last + 1


def _parts(message: StoredMessage) -> list[tuple[str, bytes]]:
    try:
        if not message.trouble:
            return message.parts(_DECOMPRESSOR)
        reason = message.trouble
    except MalformedMessage as error:
        reason = str(error)
    logger.warning("message %d holds no lines: %s", message.sequence, printable(reason))
    return []


def as_shown(host: str, lines: bytes, *, prefixed: bool, for_terminal: bool) -> bytes:
    """Return the lines of a host as they are, with `host: ` in front of each, and without codes that act on a terminal."""
    if for_terminal:
        lines = safe(lines)
    if not prefixed or not lines:
        return lines
    # a host is what its subject says, which may be none that we would give
    prefix = f"{host}: ".encode("utf-8", "surrogateescape")
    prefix = safe(prefix) if for_terminal else prefix
    return b"".join(prefix + line + b"\n" for line in lines.removesuffix(b"\n").split(b"\n"))


def last_lines(lines: bytes, most: int) -> bytes:
    """Return the last `most` lines, or all where they are fewer; a last one without a newline counts."""
    if most <= 0:
        return b""
    at = len(lines) - lines.endswith(b"\n")
    for _ in range(most):
        at = lines.rfind(b"\n", 0, at)
        if at < 0:
            return lines
    return lines[at + 1 :]
