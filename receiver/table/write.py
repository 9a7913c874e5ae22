"""The work of a Spark task: read a range of a stream, write its lines to files of the table."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.app.timestamps import to_datetime
from nats_logship.client import background
from nats_logship.client.access import Access
from nats_logship.client.ranges import SequenceRange, read_range
from receiver.table.columns import (
    FILE_BYTES,
    GROUP_BYTES,
    SectionLines,
    Splitter,
    Unreadable,
    cut_groups,
    make_rows,
)
from receiver.table.location import Location
from receiver.table.parquet import open_parquet

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
class Range:
    """The sequences `[first, until)` of a stream, created at `created`."""

    stream: str
    created: str
    first: int
    until: int


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
    """What a task has written: files, bytes of lines, and the messages that it could not read."""

    files: tuple[File, ...] = ()
    line_bytes: int = 0
    unreadable: tuple[tuple[str, Unreadable], ...] = ()


def write_range(chosen: Range, broker: Broker, lines: Location) -> Written:
    """Write the lines of a range to new files below `lines`, sorted by host.

    A task that is tried again writes other files. Raises `LostSequences` if messages were removed
    meanwhile, OSError, and what `read_range` raises.
    """
    connection = background.connection(broker.servers, broker.access, _PROGRAM)
    asked = SequenceRange(">", chosen.first, chosen.until, chosen.stream, fail_on_data_loss=True)
    splitter, size = Splitter(), 0
    files = list[File]()
    runs = read_range(connection, asked)
    found = (part for run in runs for message in run for part in splitter.split(message))
    for parts in cut_groups(found, FILE_BYTES):
        size += sum(len(part.payload) for part in parts)
        for day, of_day in _by_day(parts):
            files.append(_write_file(of_day, day, f"{chosen.stream}/{chosen.created}", lines))
    unreadable = tuple((chosen.stream, one) for one in splitter.unreadable)
    return Written(tuple(files), size, unreadable)


def _by_day(parts: Sequence[SectionLines]) -> Iterator[tuple[date, list[SectionLines]]]:
    """Yield parts by the day on which they were stored, sorted by host."""
    days: dict[int, list[SectionLines]] = {}
    for part in parts:
        days.setdefault(part.stored_at // _DAY, []).append(part)
    for number, found in sorted(days.items()):
        found.sort(key=lambda part: part.host)  # a stable sort: as in the stream otherwise
        yield to_datetime(number * _DAY).date(), found


def _write_file(parts: list[SectionLines], day: date, stream: str, lines: Location) -> File:
    tables = (make_rows(group, stream) for group in cut_groups(parts, GROUP_BYTES))
    return write_tables(tables, day.isoformat(), lines)


def write_tables(tables: Iterator[pa.Table], day: str, lines: Location) -> File:
    """Write tables of rows to a new file of a day, a row group each; returns when it is on disk."""
    path = f"date={day}/{uuid.uuid4().hex}.parquet"
    stats = _Stats()
    with lines.write(path) as sink:
        with open_parquet(sink) as writer:
            for table in tables:
                stats.add(table)
                writer.write_table(table)
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
