"""What the data source shows of a message: the columns, and the row that a stored message becomes. Values only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from broker.block import MalformedBlock, Origin, decode_origin, decode_payload
from broker.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["Stored", "columns", "record_batches"]

_BATCH_BYTES = 4 * 1024 * 1024
"""About how much payload goes to Spark at once, unfolded."""

_SPAN = StructType(
    [
        StructField("file", StringType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)
_COLUMNS = (
    StructField("partition", IntegerType()),
    StructField("sequence", LongType()),
    StructField("time", TimestampType()),
    StructField("subject", StringType()),
    StructField("host", StringType()),
    StructField("file", StringType()),
    StructField("span", _SPAN),
    StructField("lines", IntegerType()),
    StructField("payload", BinaryType()),
)
_HEADERS = StructField("headers", MapType(StringType(), StringType()))

_ARROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("subject", pa.string()),
        ("host", pa.string()),
        ("file", pa.string()),
        ("span", pa.struct([("file", pa.string()), ("start", pa.int64()), ("end", pa.int64())])),
        ("lines", pa.int32()),
        ("payload", pa.binary()),
    ]
)
_ARROW_WITH_HEADERS = _ARROW.append(
    pa.field("headers", pa.map_(pa.string(), pa.field("value", pa.string())))
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of the stream as it is stored there; `time` is when that was, UTC."""

    sequence: int
    time: datetime
    subject: str
    headers: dict[str, str]
    payload: bytes


def columns(include_headers: bool) -> StructType:
    """Return the schema of the rows; `headers` is there on request, as in Spark's Kafka source."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else [*_COLUMNS])


def record_batches(
    partition: int, messages: Iterable[Stored], include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages of one partition, in their order; claims carry no lines and have no row.

    `payload` is unfolded, and gets the last newline that a foreign publisher left out, so that the payloads of a host
    in the order of `sequence` are its file. A message that breaks our rules has its payload as it was sent, and NULL
    for `lines`.
    """
    schema = _ARROW_WITH_HEADERS if include_headers else _ARROW
    rows: list[dict[str, Any]] = []
    size = 0
    for message in messages:
        row = _row(partition, message, include_headers)
        if row is None:
            continue
        rows.append(row)
        size += len(row["payload"])
        if size >= _BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _row(partition: int, message: Stored, include_headers: bool) -> dict[str, Any] | None:
    row: dict[str, Any] = {
        "partition": partition,
        "sequence": message.sequence,
        "time": message.time,
        "subject": _text(message.subject),
        "host": _host(message.subject),
        "payload": message.payload,
    }
    if include_headers:
        row["headers"] = {_text(k): _text(v) for k, v in message.headers.items()}
    try:
        origin = decode_origin(message.headers)
        payload = decode_payload(message.headers, message.payload)
    except MalformedBlock:
        return row
    if origin is not None and origin.is_claim:
        return None
    return row | _unfolded(origin, payload)


def _unfolded(origin: Origin | None, payload: bytes) -> dict[str, Any]:
    if origin is None and not payload.endswith(b"\n"):
        payload += b"\n"
    known: dict[str, Any] = {"payload": payload, "lines": payload.count(b"\n")}
    if origin is not None and origin.span is not None:
        span = origin.span
        known["file"] = _text(origin.file)
        known["span"] = {"file": _text(span.file), "start": span.start, "end": span.end}
    return known


def _host(subject: str) -> str | None:
    try:
        return Subject.parse(subject).host
    except (InvalidSubject, InvalidHost):
        return None


def _text(value: str) -> str:
    # a path may hold bytes that are no UTF-8; Spark's strings may not
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
