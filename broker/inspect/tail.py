"""`logbroker tail`: the lines of all hosts as they come, from a time or a sequence on, or the last ones. Changes nothing."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import zstandard

from broker.inspect.matching import LineFilter, line_filter
from broker.inspect.message import StoredMessage, safe
from broker.inspect.reader import MessageReader, find_sequence_at, follow
from broker.inspect.streams import list_streams
from nats_logship.app.selection import LineSelection
from nats_logship.app.text import printable
from nats_logship.app.timestamps import Moment
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.message import MalformedMessage, Section
from nats_logship.wire.subjects import host_filter, partition_filter

_FIRST_WINDOW = 32  # messages that are searched for the last lines, and
_WIDER = 8  # times as many next
_MOST_SEARCHED = 100_000  # messages, unless the broker selects one host's
_DECOMPRESSOR = zstandard.ZstdDecompressor()
logger = logging.getLogger(__name__)


class TailPiece(NamedTuple):
    """Lines of one file of a host, from one message; `stored_at` is in nanoseconds since the epoch.

    `file_id` and `end` are those of their span; empty and 0 for the lines of another client than ours.
    """

    host: str
    partition: int | None
    sequence: int
    stored_at: int
    file: str
    lines: bytes
    file_id: str = ""
    end: int = 0

    def last(self, most: int) -> Iterator["TailPiece"]:
        """Yield the last lines, each as a piece of its own."""
        ended = self.lines.endswith(b"\n")
        found = self.lines.rsplit(b"\n", most + ended)
        for line in found[-most - ended : len(found) - ended]:
            yield self._replace(lines=line + b"\n")


class Searched(NamedTuple):
    """That the last lines were looked for in so many of the last messages only; there may be more before them."""

    messages: int


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Which lines: of these hosts and files, partitions (none: all), the last `lines` of those from `since` on, None meaning all.

    `follow`: those to come as well. Of all these, the lines that match the regular expression `match`, if there is one.
    """

    selection: LineSelection = field(default_factory=LineSelection)
    partitions: tuple[int, ...] = ()
    since: Moment | None = None
    lines: int | None = 10
    follow: bool = True
    match: str = ""

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

    async def pieces(
        self, messages: Iterable[StoredMessage], matching: LineFilter | None
    ) -> AsyncGenerator[TailPiece, None]:
        """Yield the wanted lines of messages, section by section."""
        wants_file = self.selection.wants_file
        for one in messages:
            files = [section.path for section in one.sections] or [""]
            if self.selection.wants_host(one.host) and any(map(wants_file, files)):
                number = one.subject.partition if one.subject else None
                for section, part in _parts(one):
                    if not wants_file(section.path if section else ""):
                        continue
                    if lines := await matching(part) if matching and part else part:
                        about = (one.host, number, one.sequence, one.stored_at)
                        yield TailPiece(*about, *_named(section, lines))


def _named(section: Section | None, lines: bytes) -> tuple[str, bytes, str, int]:
    if section is None:
        return "", lines, "", 0
    return section.path, lines, section.span.file, section.span.end


def _parts(message: StoredMessage) -> list[tuple[Section | None, bytes]]:
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
) -> AsyncGenerator[TailPiece | Searched, None]:
    """Yield the lines to be shown, and first `Searched` where that was limited; raises `OperatorError`, `ConnectionLost` or `Rejected`.

    A broker that goes away later is waited for: no line is shown twice, none is left out. The last lines come in the order
    of their storage; from a sequence or time on, lines of a host are in their order, and streams are shown as they come.
    """
    readers: dict[MessageReader, int] = {}
    newest: list[TailPiece] = []
    async with AsyncExitStack() as stack:
        pattern = wanted.match
        matching = await stack.enter_async_context(line_filter(pattern)) if pattern else None
        for name in await retry_until_answered(connection, list_streams, ELECTION):
            info = partial(Connection.api, name=f"STREAM.INFO.{name}")
            state = (await retry_until_answered(connection, info, ELECTION))["state"]
            last = state["last_seq"]
            ask = partial(find_sequence_at, stream=name, moment=wanted.since or 0, end=last + 1)
            first = max(state["first_seq"], await retry_until_answered(connection, ask, ELECTION))
            if wanted.lines and state["messages"]:
                ends = first, last
                last_ones, searched = await _newest(connection, name, wanted, ends, matching)
                newest += last_ones
                if searched:
                    yield Searched(searched)
            start = at_sequence(first if wanted.lines is None else last + 1)
            reader = MessageReader(connection, name, start, wanted.filters())
            stack.push_async_callback(reader.close)
            readers[reader] = last
        newest.sort(key=lambda piece: piece.stored_at)
        for piece in newest[-(wanted.lines or 1) :]:
            yield piece
        async for some in follow(list(readers)) if wanted.follow else _stored(readers):
            async for piece in wanted.pieces(some, matching):
                yield piece


async def _stored(readers: dict[MessageReader, int]) -> AsyncGenerator[list[StoredMessage], None]:
    """Yield what streams hold up to their ends."""
    for reader, last in readers.items():
        async for message in reader.read_all(last):
            yield [message]


async def _newest(
    connection: Connection,
    stream: str,
    wanted: TailOptions,
    ends: tuple[int, int],
    matching: LineFilter | None,
) -> tuple[list[TailPiece], int]:
    """Return the last lines between the ends of a stream, searching ever more of its end, and how many messages that was limited to; 0 for no limit."""
    (first, last), window = ends, _FIRST_WINDOW
    most = wanted.lines or 1
    kept: deque[TailPiece] = deque(maxlen=most)
    while True:
        begin = max(first, last + 1 - window)
        reader = MessageReader(connection, stream, at_sequence(begin), wanted.filters())
        kept.clear()
        async for message in reader.read_all(last):
            async for piece in wanted.pieces([message], matching):
                kept.extend(piece.last(most))
        if begin == first or len(kept) == most:
            return list(kept), 0
        if window > _MOST_SEARCHED and not wanted.only_host:
            return list(kept), window
        window *= _WIDER


def format_lines(host: str, lines: bytes, *, prefixed: bool, for_terminal: bool) -> bytes:
    """Return the lines of a host as they are, with `host: ` in front of each, and without codes that act on a terminal."""
    if for_terminal:
        lines = safe(lines)
    if not prefixed or not lines:
        return lines
    # a host is what its subject says, which may be none that we would give
    prefix = f"{host}: ".encode("utf-8", "surrogateescape")
    prefix = safe(prefix) if for_terminal else prefix
    return b"".join(prefix + line + b"\n" for line in lines.removesuffix(b"\n").split(b"\n"))
