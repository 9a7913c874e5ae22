"""The work of a Spark task: read a range of a stream, write its lines to files of the table."""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.app.timestamps import to_datetime
from nats_logship.client import background
from nats_logship.client.access import Access
from nats_logship.client.find import StreamMessage
from nats_logship.client.ranges import SequenceRange, read_range
from receiver.table.columns import (
    FILE_BYTES,
    FILE_SCHEMA,
    GROUP_BYTES,
    SectionLines,
    Splitter,
    Unreadable,
    cut_groups,
    find_host,
    make_rows,
    weigh_message,
)
from receiver.table.location import Location
from receiver.table.parquet import open_parquet
from receiver.table.plan import REMOVED, Range, Removed

STATISTICS = ("time", "host", "stream", "sequence")
"""The columns whose smallest and largest values commits have: those that are never NULL."""

_DAY = 24 * 3600 * 10**9  # nanoseconds
_PROGRAM = "logreceiver table"


@dataclass(frozen=True, slots=True)
class Broker:
    """How tasks reach the broker."""

    servers: tuple[str, ...]
    access: Access


@dataclass(frozen=True, slots=True)
class File:
    """A file that no commit names yet; `stats` is JSON as Delta has it."""

    path: str
    day: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has written of a range: files, and bytes of lines; and what it could not read."""

    range: Range
    files: tuple[File, ...] = ()
    line_bytes: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    removed: tuple[Removed, ...] = ()


def write_range(chosen: Range, broker: Broker, lines: Location) -> Written:
    """Write the lines of a range to new files below `lines`, sorted by host.

    A task that is tried again writes other files. Raises `LostSequences` if messages were removed
    meanwhile, OSError, and what `read_range` raises.
    """
    connection = background.connection(broker.servers, broker.access, _PROGRAM)
    asked = SequenceRange(">", chosen.first, chosen.until, chosen.stream, fail_on_data_loss=True)
    splitter, removed = Splitter(), list[Removed]()
    messages = _find_holes(chain.from_iterable(read_range(connection, asked)), chosen, removed)
    make = partial(make_rows, stream=f"{chosen.stream}/{chosen.created}")

    def write(some: list[StreamMessage]) -> Iterator[File]:
        for day, of_day in _by_day(some):
            parts = chain.from_iterable(map(splitter.split, of_day))
            tables = map(make, cut_groups(parts, GROUP_BYTES, _weigh))
            if (rest := _unless_empty(tables)) is not None:
                yield write_tables(rest, day, lines)

    # `map` keeps nothing of the step before, as a variable of a loop would
    found = chain.from_iterable(map(write, cut_groups(messages, FILE_BYTES, weigh_message)))
    files = tuple(found)
    return Written(chosen, files, splitter.line_bytes, tuple(splitter.unreadable), tuple(removed))


def _find_holes(
    messages: Iterable[StreamMessage], chosen: Range, removed: list[Removed]
) -> Iterator[StreamMessage]:
    """Yield the messages of a range, and add the sequences between them that are not there."""

    def note(first: int, until: int) -> None:
        if first < until:
            removed.append(Removed(chosen.stream, chosen.created, first, until, REMOVED))

    first = chosen.first
    for message in messages:
        note(first, message.sequence)
        first = message.sequence + 1
        yield message
    note(first, chosen.until)


def _by_day(messages: Sequence[StreamMessage]) -> Iterator[tuple[str, list[StreamMessage]]]:
    """Yield messages by the day on which they were stored, sorted by host."""
    days: dict[int, list[StreamMessage]] = {}
    for message in messages:
        days.setdefault(message.stored_at // _DAY, []).append(message)
    for number, found in sorted(days.items()):
        found.sort(key=find_host)  # a stable sort: as in the stream otherwise
        yield to_datetime(number * _DAY).date().isoformat(), found


def _weigh(part: SectionLines) -> int:
    return part.width


def _unless_empty(tables: Iterator[pa.Table]) -> Iterator[pa.Table] | None:
    for first in tables:
        return chain([first], tables)
    return None


def write_tables(
    tables: Iterator[pa.Table], day: str, lines: Location, schema: pa.Schema = FILE_SCHEMA
) -> File:
    """Write tables of rows to a new file of a day, a row group each; returns when it is on disk."""
    path = f"date={day}/{uuid.uuid4().hex}.parquet"
    stats = _Stats()
    with lines.write(path) as sink:
        with open_parquet(sink, schema) as writer:
            for table in tables:
                stats.add(table)
                writer.write_table(table)
                del table  # before the next one is made
        size = sink.tell()
    return File(path, day, size, stats.rows, stats.as_json())


class _Stats:
    """The smallest and largest values of the columns `STATISTICS`."""

    def __init__(self) -> None:
        self.rows = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls = dict.fromkeys(STATISTICS, 0)

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for name in STATISTICS:
            column = table[name].combine_chunks()
            if pa.types.is_dictionary(column.type):
                column = column.dictionary.take(pc.unique(column.indices))
            ends = pc.min_max(column).as_py()
            self._low[name] = min(self._low.get(name, ends["min"]), ends["min"])
            self._high[name] = max(self._high.get(name, ends["max"]), ends["max"])

    def as_json(self) -> str:
        low, high = ({k: _plain(v) for k, v in one.items()} for one in (self._low, self._high))
        found = {"numRecords": self.rows, "minValues": low, "maxValues": high}
        return json.dumps({**found, "nullCount": self._nulls})


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value


def now_ms() -> int:
    """Return the time of a commit's action in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
