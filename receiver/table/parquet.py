"""How the files of a table are written: Parquet that DuckDB, Polars, Spark and Trino read."""

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from receiver.table.location import Location

_PAGE_BYTES = 8 * 1024 * 1024  # of lines: larger pages compress better
_ENCODINGS = {
    **dict.fromkeys(("time", "sequence", "pos", "record", "ts"), "DELTA_BINARY_PACKED"),
    "line": "PLAIN",
    "raw": "PLAIN",
}
_LONG = {*("line", "raw", "payload")}  # without statistics


@dataclass(frozen=True, slots=True)
class TableForm:
    """The columns of a table, which is partitioned by `date`, and how its files have them.

    `names` have few different values: dictionaries in Arrow, texts in Parquet. Commits have the
    smallest and largest values of `statistics`, which are never NULL in our rows. Rows are sorted
    by `sort_by`, which is one of `names`.
    """

    name: str
    schema: pa.Schema
    names: tuple[str, ...]
    statistics: tuple[str, ...]
    sort_by: str

    @property
    def file_schema(self) -> pa.Schema:
        """The columns in a file: all but `date`."""
        coded = pa.dictionary(pa.int32(), pa.string())
        fields = [one for one in self.schema if one.name != "date"]
        return pa.schema(
            [(one.name, coded if one.name in self.names else one.type) for one in fields]
        )


@dataclass(frozen=True, slots=True)
class File:
    """A file that no commit names yet; `stats` is JSON as Delta has it."""

    path: str
    day: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file of the newest version; times are those of its first and last line, RFC 3339."""

    path: str
    day: date
    size: int
    rows: int
    begins: str
    ends: str


def write_tables(
    tables: Iterable[pa.Table], day: date, location: Location, form: TableForm
) -> File:
    """Write rows with the columns of `file_schema` to a new file of a day, a row group each.

    Returns when the file is on disk. Raises OSError.
    """
    path = f"date={day}/{uuid.uuid4().hex}.parquet"
    stats = _Stats(form.statistics)
    with location.write(path) as sink:
        with _open_parquet(sink, form.file_schema) as writer:
            for table in tables:
                stats.add(table)
                writer.write_table(table)
                del table  # before the next one is made
        size = sink.tell()
    return File(path, str(day), size, stats.rows, stats.as_json())


def _open_parquet(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=5,  # smaller than text by zstd -3, for 1 to 2 s of CPU per GB
        use_dictionary=[one.name for one in schema if pa.types.is_dictionary(one.type)],
        column_encoding={name: one for name, one in _ENCODINGS.items() if name in schema.names},
        write_statistics=[name for name in schema.names if name not in _LONG],
        data_page_size=_PAGE_BYTES,
        max_rows_per_page=200_000,
        store_schema=False,
    )


class _Stats:
    """The smallest and largest values of some columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = 0
        self._names = names
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls = dict.fromkeys(names, 0)

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for name in self._names:
            for column in table[name].chunks:
                nulls = column.null_count
                if pa.types.is_dictionary(column.type):
                    column = column.dictionary.take(pc.unique(column.indices))
                ends = pc.min_max(column).as_py()
                self._nulls[name] += nulls
                if ends["min"] is None:
                    continue
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
