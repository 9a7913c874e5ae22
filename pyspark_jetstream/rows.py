"""Turns stored messages into Arrow columns: a row for a section, or for each of its lines.

Python does nothing line by line: Arrow splits the payloads of many sections at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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

from nats_logship.client.find import StreamMessage
from nats_logship.wire.message import (
    MalformedMessage,
    Section,
    decode_origin,
    decode_payload,
    split_sections,
)
from nats_logship.wire.records import PIECE, RecordForm, Records, parse_records
from nats_logship.wire.subjects import InvalidHost, InvalidSubject, Subject
from pyspark_jetstream.options import SourceOptions

_BATCH_BYTES = 4 * 1024 * 1024
"""About the decompressed bytes of lines and headers in one Arrow batch."""


def columns(options: SourceOptions) -> StructType:
    """Return the columns of the rows, sections or lines; `headers` as in Spark's Kafka source."""
    schema = StructType().add("partition", IntegerType()).add("sequence", LongType())
    schema.add("time", TimestampType())
    for name in ("subject", "host", "file"):
        schema.add(name, StringType())
    if options.explode:
        schema.add("pos", IntegerType()).add("record", IntegerType())
        schema.add("line", StringType())
    else:
        span = StructType().add("file", StringType()).add("start", LongType())
        schema.add("section", IntegerType()).add("span", span.add("end", LongType()))
        schema.add("lines", IntegerType()).add("payload", BinaryType())
    if options.headers:
        schema.add("headers", MapType(StringType(), StringType()))
    return schema


def record_batches(
    messages: Iterable[StreamMessage], options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages in their order; claims and empty messages have no row.

    `payload` is decompressed, and ends with a newline even if a plain client left it out. So the
    payloads of a file, ordered by `sequence` and `section`, are its bytes. A message that cannot be
    decoded has its payload as stored, and NULL for `lines`; with `explode` it is a single row whose
    `line` is NULL.
    """
    rows, size = list[_Row](), 0
    for message in messages:
        for row in _sections(message):
            if options.explode and row.lines is not None and not row.payload:
                continue  # a filter left out all of its lines
            rows.append(row)
            size += len(row.payload) + row.width(options)
            if size >= _BATCH_BYTES:
                yield from _batches(rows, options)
                rows, size = [], 0
    if rows:
        yield from _batches(rows, options)


@dataclass(frozen=True, slots=True)
class _Row:
    """One section of a message; `lines` None marks a payload that could not be decoded.

    `number` counts the sections of the message; `before` counts the lines of the message before
    this section.
    """

    message: StreamMessage
    payload: bytes
    lines: int | None
    section: Section | None = None
    number: int = 0
    before: int = 0

    def width(self, options: SourceOptions) -> int:
        """Return how many characters the other columns have, for the payload or for each line."""
        path = self.section.path if self.section else ""
        width = len(self.message.subject) + len(path)
        if options.headers:  # a message may have many and long ones
            width += sum(len(name) + len(value) for name, value in self.message.headers.items())
        return width


def _sections(message: StreamMessage) -> list[_Row]:
    try:
        origin = decode_origin(message.headers)
        payload = decode_payload(message.headers, message.payload)
        parts = split_sections(origin, payload) if origin else ()
    except MalformedMessage:
        return [_Row(message, message.payload, None)]
    if origin is None:
        payload += b"" if payload.endswith(b"\n") or not payload else b"\n"
        return [_Row(message, payload, payload.count(b"\n"))] if payload else []
    rows, before = list[_Row](), 0
    for number, (section, part) in enumerate(parts):
        rows.append(_Row(message, part, part.count(b"\n"), section, number, before))
        before += len(part) and part.removesuffix(b"\n").count(b"\n") + 1
    return rows


def _batches(rows: list[_Row], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    schema = _arrow_schema(options)
    shared = {name: _column(name, rows, schema) for name in schema.names if name in _VALUES}
    if not options.explode:
        yield pa.RecordBatch.from_arrays(list(shared.values()), schema=schema)
        return
    parents, exploded = _exploded(rows)
    # the other columns may be much longer than the line
    step = max(1, _BATCH_BYTES // max(64 + row.width(options) for row in rows))
    for begin in range(0, len(parents), step):
        part = parents.slice(begin, step)
        arrays = [
            shared[name].take(part) if name in shared else exploded[name].slice(begin, step)
            for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache
def _arrow_schema(options: SourceOptions) -> pa.Schema:
    return to_arrow_schema(columns(options), timezone="UTC")


def _column(name: str, rows: list[_Row], schema: pa.Schema) -> pa.Array:
    values, kind = [_VALUES[name](row) for row in rows], schema.field(name).type
    if name == "time":  # the broker writes nanoseconds; Spark counts microseconds
        return pa.array(values, pa.timestamp("ns", tz="UTC")).cast(kind, safe=False)
    return pa.array(values, kind)


def _exploded(rows: list[_Row]) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Return the index of the row of each line, and the columns `pos`, `record` and `line`."""
    payloads = [b"" if row.lines is None else row.payload.removesuffix(b"\n") for row in rows]
    lists = pc.split_pattern(pa.array(payloads, pa.binary()), "\n")
    line, parents = _as_text(lists.flatten(), payloads), pc.list_parent_indices(lists)
    begins = pc.subtract(pa.array([row.before for row in rows], pa.int32()), lists.offsets[:-1])
    pos = pc.add(pa.arange(0, len(line)).cast(pa.int32()), begins.take(parents))
    counts = pa.array([row.lines for row in rows], pa.int32())
    record = _find_records(rows, lists, pos)
    if counts.null_count:
        known = counts.is_valid().take(parents)
        line, pos = pc.if_else(known, line, None), pc.if_else(known, pos, None)
    return parents, {"pos": pos, "record": record, "line": line}


def _find_records(rows: list[_Row], lists: pa.Array, pos: pa.Array) -> pa.Array:
    """Return the `pos` of the first line of each line's record; NULL where lines are alone."""
    named = [row.section.records if row.section else "" for row in rows]
    columns = [pa.nulls(0, pa.int32())]
    begin = 0
    for name, group in groupby(range(len(rows)), key=named.__getitem__):
        end = begin + len(list(group))
        first, last = lists.offsets[begin].as_py(), lists.offsets[end].as_py()
        records, starts = parse_records(name) if name else None, lists.offsets[begin:end]
        if records is None:
            columns.append(pa.nulls(last - first, pa.int32()))
        else:
            lines = lists.values.slice(first, last - first)
            is_first = _begin_records(records, lines, pc.subtract(starts, first))
            column = pc.if_else(is_first, pos.slice(first, last - first), None)
            columns.append(pc.fill_null_forward(column))
        begin = end
    return pa.concat_arrays(columns)


def _begin_records(records: Records, lines: pa.Array, sections: pa.Array) -> pa.Array:
    """Return which lines begin a record; the first lines of sections do, at the indices given.

    RE2 searches the lines: the expression comes from a shipper, and `records` has bounded it.
    """
    is_start = records.form is RecordForm.START
    found = pc.match_substring_regex(lines, records.pattern)
    if is_start:  # but not behind a piece of a container's line
        goes_on = pc.match_substring_regex(lines, PIECE)
        behind = pa.concat_arrays([pa.array([False]), goes_on])[:-1]
        found = pc.and_not(found, behind)
    else:
        found = pa.concat_arrays([pa.array([True]), found])[:-1]
    return pc.or_(found, pc.is_in(pa.arange(0, len(lines)).cast(pa.int32()), sections))


def _as_text(line: pa.Array, payloads: list[bytes]) -> pa.Array:
    try:
        return line.cast(pa.string())
    except pa.ArrowInvalid:  # Spark's strings are UTF-8; other bytes become U+FFFD
        readable = [payload.decode("utf-8", "replace") for payload in payloads]
        return pc.split_pattern(pa.array(readable, pa.string()), "\n").flatten()


@lru_cache(maxsize=10_000)
def _subject(subject: str) -> Subject | None:
    """Return the host and partition of a subject; None for the subject of no host."""
    try:
        return Subject.parse(subject)
    except (InvalidSubject, InvalidHost):
        return None


def _span(row: _Row) -> dict[str, Any] | None:
    if row.section is None:
        return None
    span = row.section.span
    return {"file": _text(span.file_id), "start": span.start, "end": span.end}


def _text(value: str) -> str:
    # a path may have bytes that are not UTF-8; Spark's strings may not
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_VALUES: dict[str, Callable[[_Row], Any]] = {
    "partition": lambda row: (found := _subject(row.message.subject)) and found.partition,
    "sequence": lambda row: row.message.sequence,
    "time": lambda row: row.message.stored_at,
    "subject": lambda row: _text(row.message.subject),
    "host": lambda row: (found := _subject(row.message.subject)) and found.host,
    "file": lambda row: row.section and _text(row.section.path),
    "section": lambda row: row.number,
    "span": _span,
    "lines": lambda row: row.lines,
    "payload": lambda row: row.payload,
    "headers": lambda row: [(_text(k), _text(v)) for k, v in row.message.headers.items()],
}
