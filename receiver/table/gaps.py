"""The table `gaps`: what `lines` does not have, a row for each message or run of sequences."""

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nats_logship.app.faults import fault
from receiver.table.columns import Unreadable
from receiver.table.location import Location
from receiver.table.log import Log
from receiver.table.plan import Range, Removed
from receiver.table.write import File, Written

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("time", _TIME),
        ("kind", pa.string()),
        ("stream", pa.string()),
        ("first", pa.int64()),
        ("until", pa.int64()),
        ("subject", pa.string()),
        ("reason", pa.string()),
        ("payload", pa.binary()),
    ]
)
"""`kind` is `removed` or `unreadable`; sequences are `[first, until)` of `stream`."""

STATISTICS = ("first",)


Row = dict[str, Any]
_KEY = ("kind", "stream", "first", "until")


def make_rows(removed: Iterable[Removed], written: Iterable[Written], stored_at: int) -> list[Row]:
    """Return a row for all that is missing in a round; `stored_at` in ns since the epoch."""
    rows = [_describe_removed(one, stored_at) for one in removed]
    for found in written:
        rows += (_describe_removed(one, stored_at) for one in found.removed)
        rows += (_describe_unreadable(one, found.range) for one in found.unreadable)
    return rows


def _describe_removed(one: Removed, now: int) -> Row:
    return {
        "time": now // 1000,
        "kind": "removed",
        "stream": f"{one.stream}/{one.created}",
        "first": one.first,
        "until": one.until,
        "reason": one.reason,
    }


def _describe_unreadable(one: Unreadable, read: Range) -> Row:
    return {
        "time": one.stored_at // 1000,
        "kind": "unreadable",
        "stream": f"{read.stream}/{read.created}",
        "first": one.sequence,
        "until": one.sequence + 1,
        "subject": one.subject,
        "reason": one.reason,
        "payload": one.payload,
    }


def append_rows(log: Log, rows: Sequence[Row]) -> int:
    """Commit the rows that the table does not have, and return how many.

    They come before the lines: if we die between both, the next round finds them there. Raises as
    `Log.append`, OSError.
    """
    log.refresh()
    least = min(row["first"] for row in rows)
    known = log.table.to_pyarrow_table(columns=[*_KEY], filters=[("first", ">=", least)])
    there = {tuple(row[name] for name in _KEY) for row in known.to_pylist()}
    new = [row for row in rows if tuple(row[name] for name in _KEY) not in there]
    if new:
        log.append([_write(log.location, new)], {})
        fault("table_gaps")
        log.checkpoint()
    return len(new)


def _write(location: Location, rows: Sequence[Row]) -> File:
    path = f"{uuid.uuid4().hex}.parquet"
    table = pa.Table.from_pylist([*rows], schema=SCHEMA)
    with location.write(path) as sink:
        pq.write_table(table, sink, compression="zstd", store_schema=False)
        size = sink.tell()
    firsts = [row["first"] for row in rows]
    stats = {
        "numRecords": len(rows),
        "minValues": {"first": min(firsts)},
        "maxValues": {"first": max(firsts)},
        "nullCount": {"first": 0},
    }
    return File(path, "", size, len(rows), json.dumps(stats))
