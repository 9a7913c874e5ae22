"""Finds lines in the messages of a stream: of hosts and files, by an expression, by level.

Messages are read by direct gets, some thousands at a time. RE2 searches the lines of all of them as
one block, in a thread; Python parses only those messages that have a line that is wanted.
"""

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import zstandard

from nats_logship.app.selection import LineSelection
from nats_logship.app.text import printable
from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import FoundLines, OpenRecords, count_lines, records_of
from nats_logship.client.line_match import LineMatch, Range
from nats_logship.client.ranges import LostSequences, SequenceRange, read_runs
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.expressions import matching_runs
from nats_logship.wire.levels import hint_of, level_runs, levels_from
from nats_logship.wire.message import (
    MalformedMessage,
    Section,
    decode_origin,
    decode_payload,
)
from nats_logship.wire.stream_message import AnswerHead, StreamMessage, split_message
from nats_logship.wire.subjects import Subject, host_filter, parse_subject, partition_filter

_BLOCK_BYTES = 4 * 1024 * 1024  # of lines that are searched at once
_MOST_JOINED = 500_000  # lines of a section: more are shown line by line
_MOST_RUNS = 10_000  # runs of lines of a section: more are one, with the number of its first line
FIRST_WINDOW = 32
"""Messages at the end of a range that are searched for the last lines."""
WIDER = 8
"""Each further search covers so many times more messages."""
_ENCODING = b"Content-Encoding"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines are wanted: of the hosts and files of `selection`, in `partitions` (none: all).

    `match` is an expression of RE2, compared with characters, and `level` the least level; empty is
    any line. Records of several lines are chosen whole. `firsts` are sequences of a stream by
    partition: nothing before them is wanted. Raises ValueError if expression or level is bad.
    """

    selection: LineSelection = field(default_factory=LineSelection)
    partitions: tuple[int, ...] = ()
    match: str = ""
    level: str = ""
    firsts: Mapping[int, int] = field(default_factory=dict)
    _match: LineMatch | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the expression and the level."""
        object.__setattr__(self, "_match", LineMatch(self.match) if self.match else None)
        if self.level:
            levels_from(self.level)

    @property
    def only_host(self) -> str | None:
        """The host, if exactly one is selected by its name."""
        hosts = self.selection.hosts
        return hosts[0] if len(hosts) == 1 and not set(hosts[0]) & set("*?[") else None

    @property
    def subjects(self) -> list[str]:
        """The subjects that the broker selects; globs of hosts are matched here."""
        if host := self.only_host:
            return [f"logs.p{n}.{host}" for n in self.partitions] or [host_filter(host)]
        return list(map(partition_filter, self.partitions))

    def wants(self, subject: Subject, sequence: int) -> bool:
        """Whether the lines of a message are wanted."""
        is_of = not self.partitions or subject.partition in self.partitions
        is_behind = sequence >= self.firsts.get(subject.partition, 0)
        return is_of and is_behind and self.selection.wants_host(subject.host)

    def find(self, lines: bytes | bytearray, start: int = 0, end: int | None = None) -> list[Range]:
        """Return the half-open ranges of the lines in `[start, end)` that match."""
        end = len(lines) if end is None else end
        found = [(start, end)] if start < end else []
        if self._match is not None:
            found = self._match.find(lines, start, end)
        if self.level:
            found = [run for one in found for run in level_runs(self.level, lines, *one)]
        return found

    def may_match(self, lines: bytes) -> list[Range]:
        """Return ranges of lines with all that match, quickly."""
        if self._match is not None:
            return self._match.find(lines, 0, len(lines))
        return matching_runs((hint_of(self.level),), lines) if self.level else [(0, len(lines))]


class SearchedRun(NamedTuple):
    """What was found in some messages. All messages before the sequence `following` are searched.

    `size` are the bytes of messages since the last such report, and `stored_at` is the time of the
    last one; 0 if not all of them are searched.
    """

    found: list[FoundLines]
    size: int
    following: int
    stored_at: int = 0


def select(
    message: StreamMessage, wanted: LineFilter, opened: OpenRecords | None = None
) -> Iterator[FoundLines]:
    """Yield the wanted lines of a message; log why a message that should have lines has none.

    Records that go on in other messages are joined by `opened`; without it, pieces are selected.
    """
    subject = parse_subject(message.subject)
    if subject is None:
        _log_trouble(message.sequence, f"{message.subject!r} is not the subject of a host")
        return
    if not wanted.wants(subject, message.sequence):
        return
    try:
        sections = split_message(message, decode_origin(message.headers))
    except MalformedMessage as error:
        _log_trouble(message.sequence, str(error))
        return
    number, origin = 0, (subject.host, subject.partition, message.sequence, message.stored_at)
    for section, lines in sections:
        path = section.path if section else ""
        if lines and wanted.selection.wants_file(path):
            found = FoundLines(*origin, path, lines, number)
            if section:
                found = found._replace(file_id=section.span.file_id, end=section.span.end)
            parts = opened.join(found, section) if section and opened else [(found, section)]
            for part in parts:
                yield from _select(*part, wanted)
        number += count_lines(lines)


def select_held(
    opened: OpenRecords, wanted: LineFilter, before: int | None = None
) -> list[FoundLines]:
    """Return the wanted lines of records whose rest has not come, and forget these records.

    Only of records that began before a time, if there is one.
    """
    return [found for one in opened.end(before) for found in _select(*one, wanted)]


def _search_run(
    run: Iterable[RawMessage], wanted: LineFilter, opened: OpenRecords
) -> Iterator[list[FoundLines]]:
    """Yield the wanted lines of direct gets' answers, about `_BLOCK_BYTES` at a time."""
    found, size = list[FoundLines](), 0
    for answer in _choose(run, wanted, opened):
        message = StreamMessage.from_direct_get(answer)
        for one in select(message, wanted, opened) if message else ():
            found.append(one)
            size += len(one.lines)
            if size >= _BLOCK_BYTES:
                yield found
                found, size = [], 0
    yield found


async def search(
    connection: Connection, item: SequenceRange, wanted: LineFilter
) -> AsyncGenerator[SearchedRun, None]:
    """Yield what is found in a range of a stream, in order, whenever some MB were searched.

    Raises as `read_runs`.
    """
    following, opened = item.first, OpenRecords()
    try:
        async with aclosing(search_on(connection, item, wanted, opened)) as runs:
            async for run in runs:
                following = run.following
                yield run
    except LostSequences:
        yield SearchedRun(select_held(opened, wanted), 0, following)
        raise
    yield SearchedRun(select_held(opened, wanted), 0, following)


async def search_on(
    connection: Connection, item: SequenceRange, wanted: LineFilter, opened: OpenRecords
) -> AsyncGenerator[SearchedRun, None]:
    """Yield the same, but `opened` has what goes on before and behind the range."""
    if len(subjects := wanted.subjects) == 1:
        item = replace(item, subject=subjects[0])
    following = item.first
    async with aclosing(read_runs(connection, item)) as runs:
        async for run in runs:
            blocks = _search_run(run, wanted, opened)
            while (found := await asyncio.to_thread(next, blocks, None)) is not None:
                yield SearchedRun(found, 0, following)
            if last := StreamMessage.from_direct_get(run[-1]) if run else None:
                following = last.sequence + 1
                size = sum(len(one.head) + len(one.data) for one in run)
                yield SearchedRun([], size, following, last.stored_at)


async def search_newest(
    connection: Connection,
    item: SequenceRange,
    wanted: LineFilter,
    lines: int,
    most: int | None = None,
) -> tuple[list[FoundLines], int]:
    """Return the last lines of a range, each by itself, and how many messages were searched.

    The search begins again with a wider range while it finds less, at least to `most` messages; the
    number is 0 if it covered the whole range or found so many lines. Raises as `read_runs`.
    """
    window = FIRST_WINDOW
    while True:
        # from the new beginning to the end again: a record may go on there
        first = max(item.first, item.until - window)
        found: deque[FoundLines] = deque(maxlen=lines)
        async with aclosing(search(connection, replace(item, first=first), wanted)) as runs:
            async for run in runs:
                for one in run.found:
                    found.extend(one.last(lines))
        if first == item.first or len(found) == lines:
            return list(found), 0
        if most is not None and window > most:
            return list(found), window
        window *= WIDER


def _choose(
    run: Iterable[RawMessage], wanted: LineFilter, opened: OpenRecords
) -> Iterator[RawMessage]:
    """Yield the messages that may have wanted lines, or pieces of records, in order."""
    if not (wanted.match or wanted.level):
        yield from run
        return
    decompressor = zstandard.ZstdDecompressor()
    some, texts, size = list[RawMessage](), list[bytes](), 0
    for message in run:
        lines = _read_lines(message, decompressor)
        some.append(message)
        texts.append(lines if lines.endswith(b"\n") else lines + b"\n")
        size += len(lines)
        if size >= _BLOCK_BYTES:
            yield from _match(some, texts, wanted, opened)
            some, texts, size = [], [], 0
    yield from _match(some, texts, wanted, opened)


def _match(
    some: Sequence[RawMessage], texts: Sequence[bytes], wanted: LineFilter, opened: OpenRecords
) -> Iterator[RawMessage]:
    """Yield the messages that have lines which may match, by the lines of each, or are needed."""
    ends = list(accumulate(map(len, texts)))
    matching = set[int]()
    for start, end in wanted.may_match(b"".join(texts)):
        matching.update(range(bisect_right(ends, start), bisect_left(ends, end) + 1))
    for number, one in enumerate(some):
        # asked one by one: the messages before may have begun a record
        if number in matching or opened.need(one):
            yield one


def _read_lines(message: RawMessage, decompressor: zstandard.ZstdDecompressor) -> bytes:
    """Return the lines of a message; none if it cannot be decompressed, which is logged."""
    if _ENCODING not in message.head:
        return message.data
    try:
        return decode_payload(message.headers, message.data, decompressor)
    except MalformedMessage as error:
        head = AnswerHead.read(message.head)
        _log_trouble(head.sequence if head else 0, str(error))
        return b""


def _log_trouble(sequence: int, reason: str) -> None:
    logger.warning("message %d holds no lines: %s", sequence, printable(reason))


def _select(found: FoundLines, section: Section | None, wanted: LineFilter) -> Iterator[FoundLines]:
    """Yield the wanted lines of all lines of a section, run by run, whole records."""
    lines, ranges = found.lines, wanted.find(found.lines)
    records = records_of(section) if section else None
    if records and lines.count(b"\n") <= _MOST_JOINED:
        ranges = records.widen(lines, ranges)
    else:
        records = None
    if len(ranges) > _MOST_RUNS:
        joined = b"".join(lines[start:end] for start, end in ranges)
        yield found._replace(
            lines=joined, number=found.number + lines.count(b"\n", 0, ranges[0][0])
        )
        return
    at, number = 0, found.number
    for start, end in ranges:
        number += lines.count(b"\n", at, start)
        at, run = start, lines[start:end]
        whole = None if records is None else tuple(records.split(run))
        yield found._replace(lines=run, number=number, records=whole)
