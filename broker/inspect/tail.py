"""`logbroker tail`: the lines of all hosts as they come, from a time or a sequence on, or the last ones. Changes nothing."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import zstandard

from broker.app.selection import LineSelection
from broker.app.units import Moment
from broker.app.untrusted import printable
from broker.client.connection import ELECTION, Connection, until_answered
from broker.inspect.ask import streams_of
from broker.inspect.message import StoredMessage, safe
from broker.inspect.reader import MessageReader, Start, at_sequence, at_time, follow
from broker.wire.message import MalformedMessage
from broker.wire.subjects import host_filter, partition_filter

__all__ = ["TailOptions", "TailPiece", "as_shown", "last_lines", "tail"]

_FIRST_WINDOW = 32  # messages that are searched for the last lines, and
_WIDER = 8  # times as many next
_MOST_SEARCHED = 100_000  # messages, unless the broker selects one host's
_AT_A_TIME = 4 * 1024 * 1024  # bytes of lines
_DECOMPRESSOR = zstandard.ZstdDecompressor()
Batch = list[StoredMessage]
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
        if host := self.only_host:
            return [f"logs.p{n}.{host}" for n in self.partitions] or [host_filter(host)]
        return list(map(partition_filter, self.partitions))

    def pieces(self, messages: Iterable[StoredMessage]) -> Iterator[TailPiece]:
        """Yield the wanted lines of messages, section by section."""
        wants_file = self.selection.wants_file
        for one in messages:
            files = [section.path for section in one.sections] or [""]
            if self.selection.wants_host(one.host) and any(map(wants_file, files)):
                number = one.subject.partition if one.subject else None
                for file, lines in _parts(one):
                    if lines and wants_file(file):
                        yield TailPiece(one.host, number, one.sequence, one.stored_at, file, lines)


def _parts(message: StoredMessage) -> list[tuple[str, bytes]]:
    reason = message.trouble
    try:
        if not reason:
            return message.parts(_DECOMPRESSOR)
    except MalformedMessage as error:
        reason = str(error)
    logger.warning("message %d holds no lines: %s", message.sequence, printable(reason))
    return []


async def tail(
    connection: Connection, wanted: TailOptions
) -> AsyncGenerator[list[TailPiece], None]:
    """Yield the lines to be shown, some MiB at a time; raises `OperatorError`, `ConnectionLost` or `Rejected`.

    A broker that goes away later is waited for: no line is shown twice, none is left out. The last lines come in the order
    of their storage; from a sequence or time on, lines of a host are in their order, and streams are shown as they come.
    """
    readers: list[MessageReader] = []
    ends: list[int] = []
    newest: list[TailPiece] = []
    for name in await until_answered(connection, streams_of, ELECTION):
        ask = partial(_begin, stream=name, wanted=wanted)
        start, last, pieces = await until_answered(connection, ask, ELECTION)
        readers.append(MessageReader(connection, name, start, wanted.filters()))
        ends.append(last)
        newest += pieces
    try:
        if newest:
            newest.sort(key=lambda piece: piece.stored_at)
            yield list(_last(newest, wanted.lines))
        batches = follow(readers) if wanted.follow else _stored(connection, readers, ends)
        async for batch in batches:
            for some in _chunks(wanted.pieces(batch)):
                yield some
    finally:
        for reader in readers:
            await reader.close()


async def _begin(
    connection: Connection, *, stream: str, wanted: TailOptions
) -> tuple[Start, int, list[TailPiece]]:
    """Return where to begin in a stream, its last sequence, and what is to be shown before, of the last lines."""
    state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    last = state["last_seq"]
    match wanted.since:
        case datetime() as time:
            return at_time(time), last, []
        case int(sequence):
            return at_sequence(sequence), last, []
        case None:
            newest = await _newest(connection, stream, wanted, state)
            return at_sequence(last + 1), last, newest


async def _newest(
    connection: Connection, stream: str, wanted: TailOptions, state: dict[str, Any]
) -> list[TailPiece]:
    """Return the last pieces of a stream that hold so many lines, searching ever more of its end."""
    first, last, window = state["first_seq"], state["last_seq"], _FIRST_WINDOW
    while wanted.lines and state["messages"]:
        begin = max(first, last + 1 - window)
        reader = MessageReader(connection, stream, at_sequence(begin), wanted.filters())
        kept: deque[tuple[TailPiece, int]] = deque()
        lines = 0
        async for message in reader.read_all(last):
            for piece in wanted.pieces([message]):
                cut = piece._replace(lines=last_lines(piece.lines, wanted.lines))
                kept.append((cut, cut.lines.count(b"\n")))
                lines += kept[-1][1]
                while lines - kept[0][1] >= wanted.lines or len(kept) > wanted.lines:
                    lines -= kept.popleft()[1]
        is_limited = window > _MOST_SEARCHED and not wanted.only_host
        if is_limited:
            logger.warning("only the last %d messages were searched; see --since", window)
        if begin == first or lines >= wanted.lines or is_limited:
            return [piece for piece, _ in kept]
        window *= _WIDER
    return []


async def _stored(
    connection: Connection, readers: list[MessageReader], ends: list[int]
) -> AsyncGenerator[Batch, None]:
    """Yield what streams hold up to their ends, and perhaps a little more."""
    for reader, last in zip(readers, ends, strict=True):

        async def more(_: Connection, reader: MessageReader = reader, last: int = last) -> Batch:
            return await reader.read_until(last)

        while batch := await until_answered(connection, more, ELECTION):
            yield batch


def _last(pieces: list[TailPiece], most: int) -> Iterator[TailPiece]:
    """Yield the last lines of pieces."""
    left = sum(piece.lines.count(b"\n") for piece in pieces)
    for piece in pieces:
        count = piece.lines.count(b"\n")
        if left - count < most:
            yield piece._replace(lines=last_lines(piece.lines, most - (left - count)))
        left -= count


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
