"""The table `gaps`: what `lines` does not have, a row for each message or run of sequences."""

import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa

from nats_logship.app.timestamps import to_datetime
from receiver.table.columns import Unreadable
from receiver.table.location import Location
from receiver.table.parquet import File, TableForm, write_tables
from receiver.table.plan import REMOVED

GAPS = TableForm(
    name="gaps",
    schema=pa.schema(
        [
            ("date", pa.date32()),
            ("time", pa.timestamp("us", tz="UTC")),
            ("kind", pa.string()),
            ("stream", pa.string()),
            ("first", pa.int64()),
            ("until", pa.int64()),
            ("subject", pa.string()),
            ("reason", pa.string()),
            ("payload", pa.binary()),
        ]
    ),
    names=("kind", "stream"),
    statistics=("time", "stream", "first"),
    sort_by="stream",
)
"""`kind` is `removed` or `unreadable`; sequences are `[first, until)` of `stream`."""

_MOST_BYTES = 16 * 1024 * 1024  # of rows in memory
_ROW_BYTES = 1000  # that a row takes besides its payload
_SHOWN = 10

Row = dict[str, Any]


@dataclass(slots=True)
class GapWriter:
    """Writes rows about one stream, named as in `lines`, to files; a few are in memory at a time.

    `shown` has the first rows without their payloads.
    """

    location: Location
    stream: str
    files: list[File] = field(default_factory=list)
    shown: list[Row] = field(default_factory=list)
    _rows: list[Row] = field(default_factory=list)
    _size: int = 0

    def add_removed(self, first: int, until: int, reason: str = REMOVED) -> None:
        """Add sequences that were removed before they were written; raises OSError."""
        self._add(time.time_ns(), kind="removed", first=first, until=until, reason=reason)

    def add_unreadable(self, one: Unreadable) -> None:
        """Add a message that cannot be read; raises OSError."""
        self._add(
            one.stored_at,
            kind="unreadable",
            first=one.sequence,
            until=one.sequence + 1,
            subject=one.subject,
            reason=one.reason,
            payload=one.payload,
        )

    def _add(self, at: int, **columns: Any) -> None:
        row = {"time": to_datetime(at), "stream": self.stream, **columns}
        if len(self.shown) < _SHOWN:
            self.shown.append(row | {"payload": None})
        self._rows.append(row)
        self._size += len(columns.get("payload", b"")) + _ROW_BYTES
        if self._size >= _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are in memory; raises OSError."""
        rows = sorted(self._rows, key=_day_of)
        for day, of_day in groupby(rows, _day_of):
            table = pa.Table.from_pylist([*of_day], schema=GAPS.file_schema)
            self.files.append(write_tables([table], day, self.location, GAPS))
        self._rows, self._size = [], 0


def _day_of(row: Row) -> Any:
    return row["time"].date()
