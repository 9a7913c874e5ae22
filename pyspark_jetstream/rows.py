"""Turns stored messages into Arrow columns: a row for a section, or for each of its lines.

Python does nothing line by line: Arrow splits the payloads of many sections at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from zstandard import ZstdDecompressor

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
from pyspark_jetstream.schema import columns

_BATCH_BYTES = 4 * 1024 * 1024
"""About the decompressed bytes of lines and headers in one Arrow batch."""
_REST = pa.scalar(-1, pa.int32())  # stands for the rest of a record


class _Row(NamedTuple):
    """One section of a message; `lines` None marks a payload that could not be decoded.

    `width` is how many characters the other columns have, for the payload or for each line.
    `number` counts the sections of the message; `before` counts the lines of the message before
    this section.
    """

    message: StreamMessage
    payload: bytes
    lines: int | None
    width: int
    section: Section | None = None
    number: int = 0
    before: int = 0


def record_batches(
    messages: Iterable[StreamMessage], options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages in their order; claims and empty messages have no row.

    `payload` is decompressed, and ends with a newline even if a plain client left it out. So the
    payloads of a file, ordered by `sequence` and `section`, are its bytes. A message that cannot be
    decoded has its payload as stored, and NULL for `lines`; with `explode` it is a single row whose
    `line` is NULL.
    """
    rows, size, decompressor = list[_Row](), 0, ZstdDecompressor()
    for message in messages:
        for row in _sections(message, options, decompressor):
            if options.explode and row.lines is not None and not row.payload:
                continue  # a filter left out all of its lines
            rows.append(row)
            size += len(row.payload) + row.width
            if size >= _BATCH_BYTES:
                yield from _batches(rows, options)
                rows, size = [], 0
    if rows:
        yield from _batches(rows, options)


def _sections(
    message: StreamMessage, options: SourceOptions, decompressor: ZstdDecompressor
) -> list[_Row]:
    headers, width = message.headers, len(message.subject)
    if options.headers:  # a message may have many and long ones
        width += sum(map(len, chain.from_iterable(headers.items())))
    try:
        origin = decode_origin(headers)
        payload = decode_payload(headers, message.payload, decompressor)
        parts = split_sections(origin, payload) if origin else ()
    except MalformedMessage:
        return [_Row(message, message.payload, None, width)]
    if origin is None:
        payload += b"" if payload.endswith(b"\n") or not payload else b"\n"
        return [_Row(message, payload, payload.count(b"\n"), width)] if payload else []
    rows, before = list[_Row](), 0
    for number, (section, part) in enumerate(parts):
        count = part.count(b"\n")
        wide = width + len(section.path)
        rows.append(_Row(message, part, count, wide, section, number, before))
        before += count + bool(part and not part.endswith(b"\n"))
    return rows


def _batches(rows: list[_Row], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    schema = _arrow_schema(options)
    shared = {name: _COLUMNS[name](rows) for name in schema.names if name in _COLUMNS}
    if not options.explode:
        yield _batch(shared, schema, len(rows))
        return
    exploded = _Lines(rows)
    made = {name: _LINE_COLUMNS[name](exploded) for name in schema.names if name in _LINE_COLUMNS}
    # the other columns may be much longer than the line
    step = max(1, _BATCH_BYTES // max(64 + row.width for row in rows))
    for begin in range(0, len(exploded.parents), step):
        part = exploded.parents.slice(begin, step)
        columns = {name: column.take(part) for name, column in shared.items()}
        columns |= {name: column.slice(begin, step) for name, column in made.items()}
        yield _batch(columns, schema, len(part))


def _batch(columns: dict[str, pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not schema.names:  # a query that only counts
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@lru_cache
def _arrow_schema(options: SourceOptions) -> pa.Schema:
    return to_arrow_schema(columns(options), timezone="UTC")


class _Lines:
    """The lines of rows: `parents` are the indices of their rows."""

    def __init__(self, rows: list[_Row]) -> None:
        self._rows = rows
        payloads = [b"" if row.lines is None else row.payload.removesuffix(b"\n") for row in rows]
        self._payloads = payloads
        self._lists = pc.split_pattern(pa.array(payloads, pa.binary()), "\n")
        self.parents = pc.list_parent_indices(self._lists)

    @cached_property
    def _is_known(self) -> pa.Array | None:
        """Whether the message of each line could be decoded; None if all could."""
        counts = pa.array([row.lines for row in self._rows], pa.int32())
        return counts.is_valid().take(self.parents) if counts.null_count else None

    def _of_known(self, column: pa.Array) -> pa.Array:
        return column if self._is_known is None else pc.if_else(self._is_known, column, None)

    @cached_property
    def _numbers(self) -> pa.Array:
        before = pa.array([row.before for row in self._rows], pa.int32())
        begins = pc.subtract(before, self._lists.offsets[:-1])
        numbers = pa.arange(0, len(self.parents)).cast(pa.int32())
        return pc.add(numbers, begins.take(self.parents))

    def pos(self) -> pa.Array:
        return self._of_known(self._numbers)

    def line(self) -> pa.Array:
        return self._of_known(_as_text(self._lists.flatten(), self._payloads))

    def piece(self) -> pa.Array:
        """Return which lines end without a newline: last ones of a section, where it has none."""
        offsets = self._lists.offsets
        ends = [n for n, row in enumerate(self._rows, 1) if not row.payload.endswith(b"\n")]
        last = pc.subtract(offsets.take(pa.array(ends, pa.int32())), 1)
        numbers = pa.arange(0, len(self.parents)).cast(pa.int32())
        return self._of_known(pc.is_in(numbers, last))

    def record(self) -> pa.Array:
        """Return the `pos` of the line that begins the record of each line."""
        rows, lists, pos = self._rows, self._lists, self._numbers
        named = [row.section.records if row.section else "" for row in rows]
        if not any(named):
            return self.pos()
        columns, begin = list[pa.Array](), 0
        for name, group in groupby(range(len(rows)), key=named.__getitem__):
            end = begin + len(list(group))
            first, last = lists.offsets[begin].as_py(), lists.offsets[end].as_py()
            starts = pc.subtract(lists.offsets[begin:end], first)
            numbers, lines = (one.slice(first, last - first) for one in (pos, lists.values))
            records = parse_records(name) if name else None
            columns.append(_find_records(records, lines, starts, numbers) if records else numbers)
            begin = end
        return self._of_known(pa.concat_arrays(columns))


def _find_records(
    records: Records, lines: pa.Array, sections: pa.Array, numbers: pa.Array
) -> pa.Array:
    """Return the number of the line that begins the record of each line.

    NULL for the rest of a record that began in an earlier message. Sections begin at the indices
    given. RE2 searches the lines: the expression comes from a shipper, and `records` has bounded
    it.
    """
    is_first = pc.is_in(pa.arange(0, len(lines)).cast(pa.int32()), sections)
    found = pc.match_substring_regex(lines, records.pattern)
    if records.form is RecordForm.START:
        goes_on = _after_each(pc.match_substring_regex(lines, PIECE))
        begins = pc.and_not(found, pc.and_not(goes_on, is_first))
        numbers = pc.if_else(begins, numbers, _REST)
    else:
        begins = _after_each(found)
    filled = pc.fill_null_forward(pc.if_else(pc.or_(begins, is_first), numbers, None))
    return pc.if_else(pc.not_equal(filled, _REST), filled, None)


def _after_each(found: pa.Array) -> pa.Array:
    """Return which lines are behind one that was found."""
    return pa.concat_arrays([pa.array([False]), found])[:-1]


def _as_text(line: pa.Array, payloads: list[bytes]) -> pa.Array:
    try:
        return line.cast(pa.string())
    except pa.ArrowInvalid:  # Spark's strings are UTF-8; other bytes become U+FFFD
        readable = [payload.decode("utf-8", "replace") for payload in payloads]
        return pc.split_pattern(pa.array(readable, pa.string()), "\n").flatten()


@lru_cache(maxsize=10_000)
def _subject(subject: str) -> tuple[int, str] | tuple[None, None]:
    """Return the partition and host of a subject; None for the subject of no host."""
    try:
        found = Subject.parse(subject)
    except (InvalidSubject, InvalidHost):
        return None, None
    return found.partition, found.host


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Return texts; a path or subject may have bytes that are not UTF-8, Spark's strings not."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        return pa.array([one and _readable(one) for one in values], pa.string())


def _readable(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _times(rows: list[_Row]) -> pa.Array:
    # the broker writes nanoseconds; Spark counts microseconds
    microseconds = pa.array([row.message.stored_at // 1000 for row in rows], pa.int64())
    return microseconds.cast(pa.timestamp("us", tz="UTC"))


def _spans(rows: list[_Row]) -> pa.Array:
    spans = [row.section.span if row.section else None for row in rows]
    columns = [
        _texts([one.file_id if one else None for one in spans]),
        pa.array([one and one.start for one in spans], pa.int64()),
        pa.array([one and one.end for one in spans], pa.int64()),
    ]
    is_missing = pa.array([one is None for one in spans])
    return pa.StructArray.from_arrays(columns, ["file", "start", "end"], mask=is_missing)


def _headers(rows: list[_Row]) -> pa.Array:
    found = [row.message.headers for row in rows]
    offsets = pa.array(accumulate(map(len, found), initial=0), pa.int32())
    names, values = (
        _texts(list(chain.from_iterable(one))) for one in (found, (h.values() for h in found))
    )
    return pa.MapArray.from_arrays(offsets, names, values)


_COLUMNS: dict[str, Callable[[list[_Row]], pa.Array]] = {
    "partition": lambda rows: pa.array([_subject(r.message.subject)[0] for r in rows], pa.int32()),
    "sequence": lambda rows: pa.array([row.message.sequence for row in rows], pa.int64()),
    "time": _times,
    "subject": lambda rows: _texts([row.message.subject for row in rows]),
    "host": lambda rows: pa.array([_subject(r.message.subject)[1] for r in rows], pa.string()),
    "file": lambda rows: _texts([row.section.path if row.section else None for row in rows]),
    "section": lambda rows: pa.array([row.number for row in rows], pa.int32()),
    "span": _spans,
    "lines": lambda rows: pa.array([row.lines for row in rows], pa.int32()),
    "payload": lambda rows: pa.array([row.payload for row in rows], pa.binary()),
    "headers": _headers,
}
_LINE_COLUMNS: dict[str, Callable[[_Lines], pa.Array]] = {
    "pos": _Lines.pos,
    "record": _Lines.record,
    "line": _Lines.line,
    "piece": _Lines.piece,
}
