"""Searches the streams for lines, window by window, from the newest or the oldest message on.

A window is a range of time, so that several streams are searched side by side. Its messages are
searched in threads, in batches: RE2 finds what matches in whole blocks of lines, and only lines
that are shown become objects. Lines that belong to a record are one `Line`, with newlines in it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import zstandard

from broker.inspect.message import StoredMessage
from broker.inspect.reader import MessageReader
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import to_datetime
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.find import StreamMessage, find_message, find_sequence
from nats_logship.client.stream_reader import at_sequence
from nats_logship.client.stream_state import StreamState
from nats_logship.history import Line, Order, Query
from nats_logship.wire.expressions import expression, matching_runs
from nats_logship.wire.levels import find_level, level_runs
from nats_logship.wire.message import MalformedMessage
from nats_logship.wire.records import Records, parse_records
from nats_logship.wire.subjects import host_filter

_FIRST_WINDOW, _LARGEST_WINDOW = 64, 16_384  # messages of the fullest stream
_WIDER = 4  # each window covers so many times more messages
_BATCH_MESSAGES, _BATCH_BYTES = 1000, 4 * 1024 * 1024  # that a thread searches at a time
_MOST_JOINED = 500_000  # lines of a section: more are shown line by line
Range = tuple[int, int]


@dataclass(slots=True)
class StreamRange:
    """The sequences `[first, until)` of a stream that are still to be searched."""

    state: StreamState
    first: int
    until: int

    @property
    def name(self) -> str:
        """The stream's name with its creation, as tables have it."""
        return f"{self.state.name}/{self.state.created}"

    @property
    def size(self) -> int:
        """About how many bytes that is, as stored."""
        held = self.state.until - self.state.first
        return self.state.size * max(0, self.until - self.first) // max(1, held)


@dataclass(slots=True)
class Found:
    """What messages have: the lines that are wanted, in order, and how many there are of each kind.

    `counts` are numbers of lines by their time of storage, in nanoseconds, and by severity: 2 for
    errors, 1 for warnings, 0 for others. `until` is the time that was reached, 0 if that is unknown.
    """

    lines: list[Line] = field(default_factory=list)
    counts: Counter[tuple[int, int]] = field(default_factory=Counter)
    until: int = 0


class _Block(NamedTuple):
    """The lines of a section of a message, and what they have in common."""

    time: int
    host: str
    file: str
    stream: str
    sequence: int
    before: int
    lines: bytes
    records: Records | None


def filters_of(selection: LineSelection) -> tuple[str, ...]:
    """Return the subjects that the broker selects; globs of hosts are matched here."""
    hosts = selection.hosts
    return (host_filter(hosts[0]),) if len(hosts) == 1 and not set(hosts[0]) & set("*?[") else ()


async def search_streams(
    connection: Connection, ranges: Sequence[StreamRange], query: Query, order: Order, most: int
) -> AsyncGenerator[Found, None]:
    """Yield what each window has; at most `most` lines in all, in `order`. Consumes the ranges.

    Lines within a window are the oldest first. `since` and `until` of the query are not used.
    Raises `OperatorError`, `ConnectionLost`, `Rejected`.
    """
    window = _FIRST_WINDOW
    while any(one.first < one.until for one in ranges):
        cuts, until = await _cut_window(connection, ranges, order, window)
        total = Found(until=until)
        for one, (first, end) in zip(ranges, cuts, strict=True):
            if first < end:
                part = StreamRange(one.state, first, end)
                async for found in _search_range(connection, part, query, order, most):
                    total.counts += found.counts
                    total.lines = _keep(total.lines + found.lines, order, most)
        most -= len(total.lines)
        yield total
        window = min(_LARGEST_WINDOW, window * _WIDER)


def _keep(lines: list[Line], order: Order, most: int) -> list[Line]:
    lines.sort(key=lambda one: one.place)
    return lines[:most] if order is Order.OLDEST else lines[max(0, len(lines) - most) :]


async def _cut_window(
    connection: Connection, ranges: Sequence[StreamRange], order: Order, window: int
) -> tuple[list[Range], int]:
    """Take a window from the ranges; return its sequences of each, and the time it reaches."""
    fullest = max(ranges, key=lambda one: one.until - one.first)
    is_newest = order is Order.NEWEST
    cut = fullest.until - window if is_newest else fullest.first + window
    at: StreamMessage | None = None
    if fullest.first < cut < fullest.until:
        ask = partial(
            find_message, stream=fullest.state.name, request={"seq": cut, "next_by_subj": ">"}
        )
        at = await retry_until_answered(connection, ask, ELECTION)
    cuts = []
    for one in ranges:
        middle = one.first if is_newest else one.until
        if at is not None:
            middle = cut if one is fullest else await _find_cut(connection, one, at.stored_at)
        cuts.append((middle, one.until) if is_newest else (one.first, middle))
        if is_newest:
            one.until = middle
        else:
            one.first = middle
    return cuts, at.stored_at if at else 0


async def _find_cut(connection: Connection, one: StreamRange, time: int) -> int:
    ask = partial(find_sequence, stream=one.state.name, time=to_datetime(time))
    found = await retry_until_answered(connection, ask, ELECTION)
    return max(one.first, min(one.until, one.until if found is None else found))


async def _search_range(
    connection: Connection, part: StreamRange, query: Query, order: Order, most: int
) -> AsyncGenerator[Found, None]:
    start, filters = at_sequence(part.first), filters_of(query.selection)
    reader = MessageReader(connection, part.state.name, start, filters)
    async with aclosing(reader.read_all(part.until - 1)) as messages:
        batch, size = list[StoredMessage](), 0
        async for one in messages:
            batch.append(one)
            size += one.size
            if len(batch) >= _BATCH_MESSAGES or size >= _BATCH_BYTES:
                yield await asyncio.to_thread(search_messages, batch, part.name, query, order, most)
                batch, size = [], 0
        yield await asyncio.to_thread(search_messages, batch, part.name, query, order, most)


def search_messages(
    messages: Iterable[StoredMessage], stream: str, query: Query, order: Order, most: int
) -> Found:
    """Return the lines of messages that are wanted, in order, at most `most`, and count all."""
    decompressor, found = zstandard.ZstdDecompressor(), Found()
    blocks = [
        block
        for one in messages
        if query.selection.wants_host(one.host)
        for block in _split(one, stream, decompressor)
        if query.selection.wants_file(block.file)
    ]
    ordered = blocks if order is Order.OLDEST else reversed(blocks)
    chosen: list[list[Line]] = []
    for block in ordered:
        ranges = _choose(block, query)
        _count(block, ranges, found.counts)
        if most > 0 and ranges:
            lines = _cut_lines(block, ranges, order, most)
            chosen.append(lines)
            most -= len(lines)
    pieces = chosen if order is Order.OLDEST else reversed(chosen)
    found.lines = [line for lines in pieces for line in lines]
    return found


def _split(
    message: StoredMessage, stream: str, decompressor: zstandard.ZstdDecompressor
) -> Iterator[_Block]:
    """Yield the blocks of lines of a message; none of one that a receiver would quarantine."""
    if message.trouble:
        return
    try:
        sections = message.split_lines(decompressor)
    except MalformedMessage:
        return
    before = 0
    for section, lines in sections:
        if not lines:
            continue
        count = lines.count(b"\n") + (not lines.endswith(b"\n"))
        records = parse_records(section.records) if section and section.records else None
        yield _Block(
            time=message.stored_at,
            host=message.host,
            file=section.path if section else "",
            stream=stream,
            sequence=message.sequence,
            before=before,
            lines=lines,
            records=records if count <= _MOST_JOINED else None,
        )
        before += count


def _choose(block: _Block, query: Query) -> list[Range]:
    """Return the ranges of lines that match and are of the level; whole records."""
    lines = block.lines
    ranges = [(0, len(lines))]
    if query.match:
        ranges = matching_runs((expression(query.match),), lines)
    if query.level:
        ranges = [one for some in ranges for one in level_runs(query.level, lines, *some)]
    return block.records.widen(lines, ranges) if block.records else ranges


def _count(block: _Block, ranges: Sequence[Range], counts: Counter[tuple[int, int]]) -> None:
    for first, last in ranges:
        bad = len(level_runs("warning", block.lines, first, last))
        worse = len(level_runs("error", block.lines, first, last)) if bad else 0
        unended = last == len(block.lines) and not block.lines.endswith(b"\n")
        number = block.lines.count(b"\n", first, last) + unended
        for severity, of_it in enumerate((number - bad, bad - worse, worse)):
            if of_it:
                counts[block.time, severity] += of_it


def _cut_lines(block: _Block, ranges: Sequence[Range], order: Order, most: int) -> list[Line]:
    """Return the first or the last lines, or records, of ranges of a block: `most` or few more."""
    chosen: list[list[Line]] = []
    for one in ranges if order is Order.OLDEST else reversed(ranges):
        chosen.append(_make_lines(block, *_narrow(block, one, order, most)))
        most -= len(chosen[-1])
        if most <= 0:
            break
    pieces = chosen if order is Order.OLDEST else reversed(chosen)
    return [line for lines in pieces for line in lines]


def _narrow(block: _Block, whole: Range, order: Order, most: int) -> Range:
    """Return the part of a range that has its first or its last lines; records stay whole."""
    (first, last), lines = whole, block.lines
    if block.records:
        return whole
    at = first if order is Order.OLDEST else last - lines.endswith(b"\n", first, last)
    for _ in range(most):
        if order is Order.OLDEST:
            at = lines.find(b"\n", at, last) + 1
        else:
            at = lines.rfind(b"\n", first, max(at, first))
        if at <= 0:
            return whole
    return (first, at) if order is Order.OLDEST else (at + 1, last)


def _make_lines(block: _Block, first: int, last: int) -> list[Line]:
    run = block.lines[first:last]
    parts = block.records.split(run) if block.records else run.removesuffix(b"\n").split(b"\n")
    pos, found = block.before + block.lines.count(b"\n", 0, first), list[Line]()
    for part in parts:
        line = part.removesuffix(b"\n") if block.records else part
        found.append(
            Line(
                time=block.time,
                host=block.host,
                file=block.file,
                stream=block.stream,
                sequence=block.sequence,
                pos=pos,
                line=line,
                level=find_level(line),
            )
        )
        pos += line.count(b"\n") + 1
    return found
