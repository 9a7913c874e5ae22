"""Turns stored messages into Arrow's columns: a row for a section, or for each of its lines.

Nothing is done line by line: Arrow cuts the payloads of many sections at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from broker.wire.message import MalformedMessage, Section, decode_origin, decode_payload, split
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject
from receiver.consume import background
from receiver.source.options import Show, SourceOptions
from receiver.source.patterns import partition_in
from receiver.source.ranges import Range
from receiver.source.reread import read
from receiver.source.schema import HEADERS, SPAN, arrow_schema
from receiver.source.stored import Stored

__all__ = ["read_rows", "record_batches"]

_BATCH_BYTES = 4 * 1024 * 1024
"""About how many bytes of lines and headers go to Spark at once, decompressed."""
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class _Place:
    subject: str
    partition: int | None
    host: str | None


@dataclass(frozen=True, slots=True)
class _Row:
    """One section of a message, or a part of it. `lines` None marks a payload that is shown as it was sent.

    `number` counts the sections of the message; `before` is how many lines of the message come before this row's.
    """

    message: Stored
    place: _Place
    payload: bytes
    lines: int | None
    section: Section | None = None
    number: int = 0
    before: int = 0


@dataclass(slots=True)
class _Columns:
    """The rows of a batch so far."""

    rows: list[_Row] = field(default_factory=list)
    size: int = 0
    widest: int = 64  # characters of what stands in each row of a message beside the line

    def add(self, row: _Row, show: Show) -> None:
        named = len(row.message.subject) + row.message.header_size
        is_first = not (row.number or row.before)
        self.rows.append(row)
        self.size += len(row.payload) + (named if show.headers or is_first else 0)
        self.widest = max(self.widest, named + (len(row.section.path) if row.section else 0))


def read_rows(
    options: SourceOptions, partition: InputPartition, fail: bool
) -> Iterator[pa.RecordBatch]:
    """Yield what a task of Spark's reads, on the connection of this worker; Spark ends a worker that is idle."""
    item: Any = partition.value
    if not isinstance(item, Range):
        return  # Spark asks for one partition even where there is none to read
    connection = background.connection(options.servers, options.access)
    for run in read(connection, options.stream, item, fail):
        yield from record_batches(run, options.show)


def record_batches(messages: Iterable[Stored], show: Show) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages in their order; claims and empty messages carry no lines and have no row.

    `payload` is decompressed, and gets the last newline that a foreign publisher left out, so that the payloads of a host
    in the order of `sequence` and `section` are its file. A message that breaks our rules has its payload as it was sent,
    and NULL for `lines`; with `explode` it is a single row whose `line` is NULL. With `explode` the lines of a host are
    in order by `sequence` and `pos`.
    """
    columns = _Columns()
    for message in messages:
        rows = _sections(message, _place(message.subject))
        for row in _parts(rows) if show.explode else rows:
            columns.add(row, show)
            if columns.size >= _BATCH_BYTES:
                yield from _batches(columns, show)
                columns = _Columns()
    if columns.rows:
        yield from _batches(columns, show)


def _sections(message: Stored, place: _Place) -> list[_Row]:
    try:
        origin = decode_origin(message.headers)
        payload = decode_payload(message.headers, message.payload)
        parts = split(origin, payload) if origin else ()
    except MalformedMessage:
        return [_Row(message, place, message.payload, None)]
    if origin is not None:
        return [
            _Row(message, place, part, part.count(b"\n"), section, number)
            for number, (section, part) in enumerate(parts)
        ]
    if payload and not payload.endswith(b"\n"):
        payload += b"\n"
    return [_Row(message, place, payload, payload.count(b"\n"))] if payload else []


def _parts(rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows of a message in parts of about what goes to Spark at once: of short lines each costs far more."""
    before = 0
    for row in rows:
        if row.lines is None:
            yield row
            continue
        for part in _cut(row.payload, _BATCH_BYTES):
            yield replace(row, payload=part, before=before)
            before += part.removesuffix(b"\n").count(b"\n") + 1


def _cut(payload: bytes, size: int) -> Iterator[bytes]:
    """Yield whole lines, about `size` bytes at a time."""
    begin = 0
    while begin < len(payload):
        end = payload.find(b"\n", begin + size - 1) + 1 or len(payload)
        yield payload[begin:end]
        begin = end


def _batches(columns: _Columns, show: Show) -> Iterator[pa.RecordBatch]:
    rows, places = columns.rows, [row.place for row in columns.rows]
    where: list[pa.Array] = [
        pa.array([place.partition for place in places], pa.int32()),
        pa.array([row.message.sequence for row in rows], pa.int64()),
        _times([row.message.time for row in rows]),
        pa.array([place.subject for place in places], pa.string()),
        pa.array([place.host for place in places], pa.string()),
        pa.array([_file(row.section) for row in rows], pa.string()),
    ]
    headers = [_headers([row.message.headers for row in rows])] if show.headers else []
    schema = arrow_schema(show)
    if show.explode:
        parents, exploded = _exploded(rows, show.as_text)
        # what stands in each row of a message may be far more than its lines
        step = max(1, _BATCH_BYTES // columns.widest)
        for begin in range(0, len(parents), step):
            part = parents.slice(begin, step)
            arrays = [
                *(array.take(part) for array in where),
                *(array.slice(begin, step) for array in exploded),
                *(array.take(part) for array in headers),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        return
    section = [
        pa.array([row.number for row in rows], pa.int32()),
        _spans([row.section for row in rows]),
        pa.array([row.lines for row in rows], pa.int32()),
        pa.array([row.payload for row in rows], pa.binary()),
    ]
    yield pa.RecordBatch.from_arrays([*where, *section, *headers], schema=schema)


def _times(texts: list[str]) -> pa.Array:
    # the broker writes nanoseconds; Spark counts microseconds
    return pa.array(texts).cast(pa.timestamp("ns", tz="UTC")).cast(_TIME, safe=False)


def _spans(sections: list[Section | None]) -> pa.Array:
    spans = [section.span if section else None for section in sections]
    return pa.StructArray.from_arrays(
        [
            pa.array([_text(span.file) if span else None for span in spans], pa.string()),
            pa.array([span.start if span else None for span in spans], pa.int64()),
            pa.array([span.end if span else None for span in spans], pa.int64()),
        ],
        fields=list(SPAN),
        mask=pa.array([span is None for span in spans]),
    )


def _headers(headers: list[dict[str, str]]) -> pa.Array:
    ends, names, values = [0], list[str](), list[str]()
    for each in headers:
        names += each
        values += each.values()
        ends.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()), _strings(names), _strings(values), type=HEADERS
    )


def _exploded(rows: list[_Row], as_text: bool) -> tuple[pa.Array, list[pa.Array]]:
    cut = [row.payload.removesuffix(b"\n") for row in rows]
    lists = pc.split_pattern(pa.array(cut, pa.binary()), "\n")
    line = lists.flatten()
    if as_text:
        try:
            line = line.cast(pa.string())
        except (
            pa.ArrowInvalid
        ):  # Spark's strings are UTF-8; what is none of it is shown by the sign for that
            readable = [payload.decode("utf-8", "replace") for payload in cut]
            line = pc.split_pattern(pa.array(readable, pa.string()), "\n").flatten()
    parents = pc.list_parent_indices(lists)
    counts = [row.lines for row in rows]
    begins = pc.subtract(pa.array([row.before for row in rows], pa.int32()), lists.offsets[:-1])
    pos = pc.add(pa.arange(0, len(line)).cast(pa.int32()), begins.take(parents))
    if None in counts:
        known = pa.array(counts, pa.int32()).is_valid().take(parents)
        first = pc.equal(pos, 0)
        line, pos = (pc.if_else(known, array, None) for array in (line, pos))
        shown = pc.or_(known, first)
        parents, pos, line = (array.filter(shown) for array in (parents, pos, line))
    return parents, [pos, line]


def _strings(texts: list[str]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array(map(_text, texts), pa.string())


def _file(section: Section | None) -> str | None:
    return None if section is None else _text(section.path)


@lru_cache(maxsize=10_000)
def _place(subject: str) -> _Place:
    shown = _text(subject)
    try:
        known = Subject.parse(subject)
    except (InvalidSubject, InvalidHost):
        beginning = subject.split(".", 2)[:2]
        is_longer = subject.count(".") > 1
        return _Place(shown, partition_in(".".join([*beginning, ">"])) if is_longer else None, None)
    return _Place(shown, known.partition, known.host)


def _text(value: str) -> str:
    # a path may hold bytes that are no UTF-8; Spark's strings may not
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
