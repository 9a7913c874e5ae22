"""The work of a Spark task: read a range of a stream, write its lines to files of the table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain

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
    make_rows,
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
    missing, size, files = GapWriter(gaps, chosen.key), 0, list[File]()
    messages = _find_holes(chain.from_iterable(read_range(connection, asked)), chosen, missing)
    for parts in cut_groups(_split(messages, chosen.reported, missing), FILE_BYTES):
        size += sum(len(part.payload) for part in parts)
        for day, of_day in _by_day(parts):
            tables = (make_rows(group, chosen.key) for group in cut_groups(of_day, GROUP_BYTES))
            files.append(write_tables(tables, day, lines, LINES))
    missing.flush()
    background.submit(_require_same(connection, chosen)).result()
    return Written(chosen, tuple(files), size, tuple(missing.files), tuple(missing.shown))


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


def _split(
    messages: Iterable[StreamMessage], reported: int, missing: GapWriter
) -> Iterator[SectionLines]:
    splitter = Splitter()
    for message in messages:
        yield from splitter.split(message)
        while splitter.unreadable:
            one = splitter.unreadable.pop()
            if one.sequence >= reported:
                missing.add_unreadable(one)


async def _require_same(connection: Connection, chosen: Range) -> None:
    """Raise if the stream was created again: what was read may be of another one."""
    ask = partial(require_stream, name=chosen.stream)
    state = await retry_until_answered(connection, ask, AWAY)
    if state.created != chosen.created:
        raise OperatorError(f"stream {chosen.stream} was created again while it was read")


def _by_day(parts: Sequence[SectionLines]) -> Iterator[tuple[date, list[SectionLines]]]:
    """Yield parts by the day on which they were stored, sorted by host."""
    days: dict[int, list[SectionLines]] = {}
    for part in parts:
        days.setdefault(part.stored_at // _DAY, []).append(part)
    for number, found in sorted(days.items()):
        found.sort(key=lambda part: part.host)  # a stable sort: as in the stream otherwise
        yield to_datetime(number * _DAY).date(), found
