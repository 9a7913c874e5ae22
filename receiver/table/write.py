"""The work of a Spark task: read a range of a stream, write its lines to files of the table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain

import pyarrow as pa

from nats_logship.app.exits import OperatorError
from nats_logship.app.timestamps import to_datetime
from nats_logship.client import background
from nats_logship.client.access import Access
from nats_logship.client.connection import Connection, retry_until_answered
from nats_logship.client.ranges import AWAY, SequenceRange, read_range
from nats_logship.client.stream_state import require_stream
from nats_logship.wire.stream_message import StreamMessage
from receiver.table.columns import (
    FILE_BYTES,
    GROUP_BYTES,
    LINES,
    SectionLines,
    Splitter,
    cut_groups,
    find_host,
    make_rows,
    weigh_message,
)
from receiver.table.gaps import GapWriter, Row
from receiver.table.location import Location
from receiver.table.parquet import File, write_tables
from receiver.table.plan import Range

_DAY = 24 * 3600 * 10**9  # nanoseconds
_PROGRAM = "logreceiver table"


@dataclass(frozen=True, slots=True)
class Broker:
    """How tasks reach the broker."""

    servers: tuple[str, ...]
    access: Access


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has written of a range: files of `lines` and `gaps`, and bytes of lines.

    `missing` are the first rows of `gaps`.
    """

    range: Range
    files: tuple[File, ...] = ()
    line_bytes: int = 0
    gaps: tuple[File, ...] = ()
    missing: tuple[Row, ...] = ()


def write_range(chosen: Range, broker: Broker, lines: Location, gaps: Location) -> Written:
    """Write the lines of a range to new files below `lines`, sorted by host, and what is missing.

    A task that is tried again writes other files. Raises `OperatorError` if the stream was created
    again meanwhile, OSError, and what `read_range` raises.
    """
    connection = background.connection(broker.servers, broker.access, _PROGRAM)
    asked = SequenceRange(">", chosen.first, chosen.until, chosen.stream)
    missing = GapWriter(gaps, chosen.key)
    messages = _find_holes(chain.from_iterable(read_range(connection, asked)), chosen, missing)
    split = _Split(missing, chosen.reported)

    def write(some: list[StreamMessage]) -> Iterator[File]:
        for day, of_day in _by_day(some):
            parts = chain.from_iterable(map(split, of_day))
            groups = cut_groups(parts, GROUP_BYTES, lambda part: part.width)
            if (tables := _unless_empty(make_rows(one, chosen.key) for one in groups)) is not None:
                yield write_tables(tables, day, lines, LINES)

    # `map` keeps nothing of the step before, as a variable of a loop would
    files = tuple(chain.from_iterable(map(write, cut_groups(messages, FILE_BYTES, weigh_message))))
    missing.flush()
    background.submit(_require_same(connection, chosen)).result()
    return Written(chosen, files, split.line_bytes, tuple(missing.files), tuple(missing.shown))


def _find_holes(
    messages: Iterable[StreamMessage], chosen: Range, missing: GapWriter
) -> Iterator[StreamMessage]:
    """Yield the messages of a range, and note the sequences between them that are not there."""
    first = chosen.first
    for message in messages:
        if first < message.sequence:
            missing.add_removed(first, message.sequence)
        first = message.sequence + 1
        yield message
    if first < chosen.until:
        missing.add_removed(first, chosen.until)


class _Split:
    """Splits messages, and notes those that cannot be read; `line_bytes` of all parts."""

    def __init__(self, missing: GapWriter, reported: int) -> None:
        self.line_bytes = 0
        self._splitter = Splitter()
        self._missing = missing
        self._reported = reported

    def __call__(self, message: StreamMessage) -> list[SectionLines]:
        parts = self._splitter.split(message)
        self.line_bytes += sum(len(part.payload) for part in parts)
        while self._splitter.unreadable:
            one = self._splitter.unreadable.pop()
            if one.sequence >= self._reported:
                self._missing.add_unreadable(one)
        return parts


async def _require_same(connection: Connection, chosen: Range) -> None:
    """Raise if the stream was created again: what was read may be of another one."""
    ask = partial(require_stream, name=chosen.stream)
    state = await retry_until_answered(connection, ask, AWAY)
    if state.created != chosen.created:
        raise OperatorError(f"stream {chosen.stream} was created again while it was read")


def _by_day(messages: Sequence[StreamMessage]) -> Iterator[tuple[date, list[StreamMessage]]]:
    """Yield messages by the day on which they were stored, sorted by host."""
    days: dict[int, list[StreamMessage]] = {}
    for message in messages:
        days.setdefault(message.stored_at // _DAY, []).append(message)
    for number, found in sorted(days.items()):
        found.sort(key=find_host)  # a stable sort: as in the stream otherwise
        yield to_datetime(number * _DAY).date(), found


def _unless_empty(tables: Iterator[pa.Table]) -> Iterator[pa.Table] | None:
    for first in tables:
        return chain([first], tables)
    return None
