"""Turns stored messages into Arrow's columns: a row for a section, or for each of its lines.

Nothing is done line by line: Arrow cuts the payloads of many sections at once.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from broker.wire.message import MalformedMessage, Section, decode_origin, decode_payload, split
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject
from receiver.consume import background
from receiver.source.options import PROGRAM, Show, SourceOptions
from receiver.source.planning import refuse_loss
from receiver.source.ranges import Range
from receiver.source.reading import SourceMessage, read

__all__ = ["columns", "read_rows", "record_batches"]

_BATCH_BYTES = 4 * 1024 * 1024
"""About how many bytes of lines and headers go to Spark at once, decompressed."""
_OF_PARTITION = re.compile(r"logs\.p(0|[1-9][0-9]{0,5})\..+", re.DOTALL)


def columns(show: Show) -> StructType:
    """Return the schema of the rows: of sections, or of their lines; `headers` as in Spark's Kafka source."""
    schema = StructType().add("partition", IntegerType()).add("sequence", LongType())
    schema.add("time", TimestampType())
    for name in ("subject", "host", "file"):
        schema.add(name, StringType())
    if show.explode:
        schema.add("pos", IntegerType()).add("line", StringType() if show.as_text else BinaryType())
    else:
        span = StructType().add("file", StringType()).add("start", LongType())
        schema.add("section", IntegerType()).add("span", span.add("end", LongType()))
        schema.add("lines", IntegerType()).add("payload", BinaryType())
    return schema.add("headers", MapType(StringType(), StringType())) if show.headers else schema


def read_rows(
    options: SourceOptions, partition: InputPartition, fail: bool
) -> Iterator[pa.RecordBatch]:
    """Yield what a task of Spark's reads, on the connection of this worker; Spark ends a worker that is idle."""
    item: Any = partition.value
    if not isinstance(item, Range):
        return  # Spark asks for one partition even where there is none to read
    connection = background.connection(options.servers, options.access, PROGRAM)
    check = partial(refuse_loss, connection) if fail else None
    for run in read(connection, item, check):
        yield from record_batches(run, options.show)


def record_batches(messages: Iterable[SourceMessage], show: Show) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages in their order; claims and empty messages carry no lines and have no row.

    `payload` is decompressed, and gets the last newline that a foreign publisher left out, so that the payloads of a host
    in the order of `sequence` and `section` are its file. A message that breaks our rules has its payload as it was sent,
    and NULL for `lines`; with `explode` it is a single row whose `line` is NULL.
    """
    rows, size = list[_Row](), 0
    for message in messages:
        sections = _sections(message)
        for row in _parts(sections) if show.explode else sections:
            rows.append(row)
            size += len(row.payload) + row.width(show)
            if size >= _BATCH_BYTES:
                yield from _batches(rows, show)
                rows, size = [], 0
    if rows:
        yield from _batches(rows, show)


@dataclass(frozen=True, slots=True)
class _Row:
    """One section of a message, or a part of it. `lines` None marks a payload that is shown as it was sent.

    `number` counts the sections of the message; `before` is how many lines of the message come before this row's.
    """

    message: SourceMessage
    payload: bytes
    lines: int | None
    section: Section | None = None
    number: int = 0
    before: int = 0

    def width(self, show: Show) -> int:
        """Return how many characters stand beside the payload, or beside each of its lines."""
        path = self.section.path if self.section else ""
        headers = self.message.header_size if show.headers else 0
        return len(self.message.subject) + len(path) + headers


def _sections(message: SourceMessage) -> list[_Row]:
    try:
        origin = decode_origin(message.headers)
        payload = decode_payload(message.headers, message.payload)
        parts = split(origin, payload) if origin else ()
    except MalformedMessage:
        return [_Row(message, message.payload, None)]
    if origin is not None:
        return [
            _Row(message, part, part.count(b"\n"), section, number)
            for number, (section, part) in enumerate(parts)
        ]
    if payload and not payload.endswith(b"\n"):
        payload += b"\n"
    return [_Row(message, payload, payload.count(b"\n"))] if payload else []


def _parts(rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows of a message in parts of about what goes to Spark at once: of short lines each costs far more."""
    before = 0
    for row in rows:
        if row.lines is None:
            yield row
            continue
        begin = 0
        while begin < len(row.payload):
            end = row.payload.find(b"\n", begin + _BATCH_BYTES - 1) + 1 or len(row.payload)
            part, begin = row.payload[begin:end], end
            yield replace(row, payload=part, before=before)
            before += part.removesuffix(b"\n").count(b"\n") + 1


def _batches(rows: list[_Row], show: Show) -> Iterator[pa.RecordBatch]:
    schema = _arrow_schema(show)
    shared = {name: _column(name, rows, schema) for name in schema.names if name in _VALUES}
    if not show.explode:
        yield pa.RecordBatch.from_arrays(list(shared.values()), schema=schema)
        return
    parents, exploded = _exploded(rows, show.as_text)
    # what stands beside each line may be far more than the line
    step = max(1, _BATCH_BYTES // max(64 + row.width(show) for row in rows))
    for begin in range(0, len(parents), step):
        part = parents.slice(begin, step)
        arrays = [
            shared[name].take(part) if name in shared else exploded[name].slice(begin, step)
            for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache
def _arrow_schema(show: Show) -> pa.Schema:
    return to_arrow_schema(columns(show), timezone="UTC")


def _column(name: str, rows: list[_Row], schema: pa.Schema) -> pa.Array:
    values, kind = [_VALUES[name](row) for row in rows], schema.field(name).type
    if name == "time":  # the broker writes nanoseconds; Spark counts microseconds
        return pa.array(values).cast(pa.timestamp("ns", tz="UTC")).cast(kind, safe=False)
    return pa.array(values, kind)


def _exploded(rows: list[_Row], as_text: bool) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Return the lines of the rows with their numbers, and for each line the index of its row."""
    payloads = [row.payload.removesuffix(b"\n") for row in rows]
    lists = pc.split_pattern(pa.array(payloads, pa.binary()), "\n")
    line = _as_text(lists.flatten(), payloads) if as_text else lists.flatten()
    parents = pc.list_parent_indices(lists)
    begins = pc.subtract(pa.array([row.before for row in rows], pa.int32()), lists.offsets[:-1])
    pos = pc.add(pa.arange(0, len(line)).cast(pa.int32()), begins.take(parents))
    counts = [row.lines for row in rows]
    if None in counts:
        known = pa.array(counts, pa.int32()).is_valid().take(parents)
        shown = pc.or_(known, pc.equal(pos, 0))
        line, pos = (pc.if_else(known, array, None).filter(shown) for array in (line, pos))
        parents = parents.filter(shown)
    return parents, {"pos": pos, "line": line}


def _as_text(line: pa.Array, payloads: list[bytes]) -> pa.Array:
    try:
        return line.cast(pa.string())
    except pa.ArrowInvalid:  # Spark's strings are UTF-8; other bytes are shown by the sign for them
        readable = [payload.decode("utf-8", "replace") for payload in payloads]
        return pc.split_pattern(pa.array(readable, pa.string()), "\n").flatten()


@lru_cache(maxsize=10_000)
def _partition_and_host(subject: str) -> tuple[int | None, str | None]:
    """Return the partition and the host that a subject names."""
    try:
        known = Subject.parse(subject)
    except (InvalidSubject, InvalidHost):
        found = _OF_PARTITION.fullmatch(subject)
        return (int(found[1]) if found else None), None
    return known.partition, known.host


def _span(row: _Row) -> dict[str, Any] | None:
    if row.section is None:
        return None
    span = row.section.span
    return {"file": _text(span.file), "start": span.start, "end": span.end}


def _text(value: str) -> str:
    # a path may hold bytes that are no UTF-8; Spark's strings may not
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_VALUES: dict[str, Callable[[_Row], Any]] = {
    "partition": lambda row: _partition_and_host(row.message.subject)[0],
    "sequence": lambda row: row.message.sequence,
    "time": lambda row: row.message.time,
    "subject": lambda row: _text(row.message.subject),
    "host": lambda row: _partition_and_host(row.message.subject)[1],
    "file": lambda row: row.section and _text(row.section.path),
    "section": lambda row: row.number,
    "span": _span,
    "lines": lambda row: row.lines,
    "payload": lambda row: row.payload,
    "headers": lambda row: [(_text(k), _text(v)) for k, v in row.message.headers.items()],
}
