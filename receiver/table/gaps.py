"""The table `gaps`: what `lines` does not have, a row for each message or run of sequences."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nats_logship.app.faults import fault
from receiver.table.columns import Unreadable
from receiver.table.location import Location
from receiver.table.log import Log
from receiver.table.plan import Removed
from receiver.table.write import File

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


def make_rows(
    removed: Iterable[tuple[str, Removed]],
    unreadable: Iterable[tuple[str, Unreadable]],
    now: int,
) -> list[dict[str, Any]]:
    """Return rows of `gaps`; each comes with the name of the stream's transaction.

    `now` is in nanoseconds since the epoch.
    """
    return [
        {
            "time": now // 1000,
            "kind": "removed",
            "stream": name.removeprefix("logship/"),
            "first": one.first,
            "until": one.until,
            "reason": one.reason,
        }
        for name, one in removed
    ] + [
        {
            "time": one.stored_at // 1000,
            "kind": "unreadable",
            "stream": name.removeprefix("logship/"),
            "first": one.sequence,
            "until": one.sequence + 1,
            "subject": one.subject,
            "reason": one.reason,
            "payload": one.payload,
        }
        for name, one in unreadable
    ]


def append_rows(log: Log, rows: Sequence[Mapping[str, Any]], ends: Mapping[str, int]) -> None:
    """Commit the rows that the table does not have, with the transactions of the round.

    They come before the lines: if we die between both, the transactions of `gaps` are ahead, and
    the same rows are left out of the next round. Raises as `Log.append`, OSError.
    """
    log.refresh()
    new = [
        row for row in rows if row["first"] >= (log.transaction(f"logship/{row['stream']}") or 0)
    ]
    if new:
        log.append([_write(log.location, new)], ends)
        fault("table_gaps")


def _write(location: Location, rows: Sequence[Mapping[str, Any]]) -> File:
    path = f"{uuid.uuid4().hex}.parquet"
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
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
