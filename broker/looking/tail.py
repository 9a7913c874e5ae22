"""`logbroker tail`: the lines of all hosts as they come, from a place in the stream on. Changes nothing."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import zstandard

from broker.app.moment import Moment
from broker.app.printable import printable
from broker.app.selection import Selection
from broker.app.sizes import format_size
from broker.client.connection import Connection
from broker.client.patience import ELECTION, until_answered
from broker.looking.feed import Feed, Start, Taken, at_sequence, at_time
from broker.looking.lines import Run, last_lines
from broker.looking.message import Held, held
from broker.wire.message import MalformedMessage
from broker.wire.streams import STREAM
from broker.wire.subjects import host_filter, partition_filter

__all__ = ["Wanted", "tail"]

_FIRST_WINDOW, _WIDER = (
    512,
    8,
)  # messages that are looked at for the last lines, and by how much more next
_AT_A_TIME = 4 * 1024 * 1024  # bytes
_MOST_KEPT = 64 * 1024 * 1024  # bytes of the last lines, which wait in memory until all are read
_BESIDE = 200  # bytes that Python takes for a piece beside its lines and names
_MOST_LOOKED_AT = 500_000
_DECOMPRESSOR = zstandard.ZstdDecompressor()
logger = logging.getLogger(__name__)


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
        plain = len(hosts) == 1 and not set(hosts[0]) & set("*?[")
        return hosts[0] if plain else None

    def filters(self) -> list[str]:
        """Return what the broker picks out; globs are left to this end."""
        host = self.only_host
        if self.partitions:
            return [
                f"logs.p{number}.{host}" if host else partition_filter(number)
                for number in self.partitions
            ]
        return [host_filter(host)] if host else []

    def has(self, message: Held) -> bool:
        """Whether lines of a message are among them."""
        return self.selection.wants_host(message.host) and any(
            map(self.selection.wants_file, message.files)
        )

    def lines_of(self, message: Held) -> int:
        """Return how many lines of a message are among them, as its headers say; another client's count as one."""
        if not self.has(message):
            return 0
        if message.origin is None:
            return 1
        return sum(one.lines for one in message.sections if self.selection.wants_file(one.path))


async def tail(connection: Connection, wanted: Wanted, run: Run) -> AsyncGenerator[bytes, None]:
    """Yield the lines as bytes to be shown; raises `OperatorError`, `ConnectionLost` or `Rejected`.

    A broker that goes away later is waited for: nothing is shown twice, nothing left out.
    """
    last, start = await until_answered(connection, partial(_begin, wanted), ELECTION)
    feed = Feed(connection, start, wanted.filters())
    more = partial(until_answered, connection, lambda _: feed.take_up_to(last), ELECTION)
    try:
        if wanted.since is None and wanted.lines:
            for lines in await _newest(more, wanted):
                yield run.add(*lines)
        elif not wanted.follow:
            while taken := await more():
                for shown in _shown(taken, wanted, run):
                    yield shown
        while wanted.follow:
            for shown in _shown(await feed.wait(), wanted, run):
                yield shown
    finally:
        await feed.close()


def _shown(taken: list[Taken], wanted: Wanted, run: Run) -> Iterator[bytes]:
    """Yield what is to be shown, some MiB at a time: lines take much more than they did compressed."""
    parts: list[bytes] = []
    size = 0
    for host, file, lines in _pieces(taken, wanted):
        parts.append(run.add(host, file, lines))
        size += len(parts[-1])
        if size >= _AT_A_TIME:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _pieces(taken: list[Taken], wanted: Wanted) -> Iterator[tuple[str, str, bytes]]:
    """Yield the wanted lines of messages, each section's by host and file."""
    for message in filter(wanted.has, map(_read, taken)):
        for file, lines in _parts(message):
            if wanted.selection.wants_file(file):
                yield message.host, file, lines


def _read(taken: Taken) -> Held:
    delivery, message = taken
    return held(
        message.subject,
        delivery.sequence,
        delivery.stored_at,
        message.headers or {},
        message.data,
    )


def _parts(message: Held) -> list[tuple[str, bytes]]:
    try:
        if not message.trouble:
            return message.parts(_DECOMPRESSOR)
        reason = message.trouble
    except MalformedMessage as error:
        reason = str(error)
    logger.warning("message %d is no lines: %s", message.sequence, printable(reason))
    return []


async def _begin(wanted: Wanted, connection: Connection) -> tuple[int, Start]:
    """Return the last sequence that is there, and where to begin."""
    state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
    return state["last_seq"], await _start(connection, wanted, state)


async def _start(connection: Connection, wanted: Wanted, state: dict[str, int]) -> Start:
    match wanted.since:
        case datetime() as time:
            return at_time(time)
        case int(sequence):
            return at_sequence(sequence)
        case _:
            return at_sequence(await _place_of_last(connection, wanted, state))


async def _place_of_last(connection: Connection, wanted: Wanted, state: dict[str, int]) -> int:
    """Return a sequence from which on there are the last lines, by the headers alone, looked at further and further back."""
    last, window = state["last_seq"], _FIRST_WINDOW
    if not wanted.lines:
        return last + 1
    while True:
        begin = max(state["first_seq"], last + 1 - window)
        places: deque[tuple[int, int]] = deque()
        feed = Feed(connection, at_sequence(begin), wanted.filters(), headers_only=True)
        try:
            while taken := await feed.take_up_to(last):
                _note(places, taken, wanted)
        finally:
            await feed.close()
        if sum(lines for _, lines in places) >= wanted.lines or begin == state["first_seq"]:
            return places[0][0] if places else last + 1
        if window > _MOST_LOOKED_AT:
            logger.warning("only the last %d messages were looked at; see --since", window)
            return places[0][0] if places else last + 1
        window *= _WIDER


def _note(places: "deque[tuple[int, int]]", taken: list[Taken], wanted: Wanted) -> None:
    """Keep the newest messages, as many as have the lines."""
    for message in map(_read, taken):
        if lines := wanted.lines_of(message):
            places.append((message.sequence, lines))
    total = sum(lines for _, lines in places)
    while places and total - places[0][1] >= wanted.lines:
        total -= places.popleft()[1]


async def _newest(
    more: Callable[[], Awaitable[list[Taken]]], wanted: Wanted
) -> list[tuple[str, str, bytes]]:
    """Return the last lines of what is there, by host and file."""
    newest = _Newest(wanted.lines)
    while taken := await more():
        for host, file, lines in _pieces(taken, wanted):
            newest.add(host, file, lines)
    return newest.pieces()


def _size_of(host: str, file: str, lines: bytes) -> int:
    return _BESIDE + len(host) + len(file) + len(lines)


class _Newest:
    """The last pieces of all that were added, as many as the lines need; headers may claim any number of lines."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: deque[tuple[str, str, bytes, int]] = deque()
        self._lines = self._size = 0
        self._is_cut = False

    def add(self, host: str, file: str, lines: bytes) -> None:
        cut = last_lines(lines, self._most)
        if not cut:
            return
        count = cut.count(b"\n")
        self._pieces.append((host, file, cut, count))
        self._lines += count
        self._size += _size_of(host, file, cut)
        while self._lines - self._pieces[0][3] >= self._most:
            self._drop_oldest()
        while self._size > _MOST_KEPT:
            self._drop_oldest()
            self._is_cut = True

    def _drop_oldest(self) -> None:
        host, file, lines, count = self._pieces.popleft()
        self._lines -= count
        self._size -= _size_of(host, file, lines)

    def pieces(self) -> list[tuple[str, str, bytes]]:
        """Return them, the oldest first, with no more lines than are asked for; says so where there are fewer."""
        if self._is_cut and self._lines < self._most:
            size = format_size(_MOST_KEPT)
            logger.warning("only the last %s of lines are shown; see --since", size)
        left, kept = self._most, []
        for host, file, lines, _ in reversed(self._pieces):
            if left <= 0:
                break
            cut = last_lines(lines, left)
            left -= cut.count(b"\n")
            kept.append((host, file, cut))
        return kept[::-1]
