"""Turns stored messages into Arrow columns: a row for a section, or for each of its lines.

Python does nothing line by line: Arrow splits the payloads of many sections at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from zstandard import ZstdDecompressor

from nats_logship.wire.message import (
    MalformedMessage,
    decode_origin,
    decode_payload,
    split_sections,
)
from nats_logship.wire.records import PIECE, RecordForm, Records, parse_records
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.subjects import parse_subject
from pyspark_jetstream.options import SourceOptions, columns

_BATCH_BYTES = 4 * 1024 * 1024  # of lines, decompressed, and headers in one Arrow batch, about
_REST = pa.scalar(-1, pa.int32())  # means the rest of a record

_Row = tuple[Any, ...]  # of a section; tuples of texts and numbers cost no garbage collection


class _Sections(NamedTuple):
    """Sections of messages: the values of the columns that they have, and what their lines need.

    `lines` None marks a payload that could not be decoded. `width` is how many characters the other
    columns have, for the payload or for each line. `before` counts the lines of the message before
    a section. What is behind `width` is None, 0 or empty without headers of a shipper.
    """

    partition: Sequence[int | None]
    host: Sequence[str | None]
    sequence: Sequence[int]
    time: Sequence[int]
    subject: Sequence[str]
    headers: Sequence[dict[str, str]]
    payload: Sequence[bytes]
    lines: Sequence[int | None]
    width: Sequence[int]
    file: Sequence[str | None]
    span: Sequence[tuple[str, int, int] | None]
    section: Sequence[int]
    before: Sequence[int]
    records: Sequence[str]


_PAYLOAD, _WIDTH = map(_Sections._fields.index, ("payload", "width"))


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
    split = partial(_split, options=options, decompressor=ZstdDecompressor())
    for row in chain.from_iterable(map(split, messages)):
        rows.append(row)
        size += len(row[_PAYLOAD]) + row[_WIDTH]
        if size >= _BATCH_BYTES:
            yield from _batches(rows, options)
            rows, size = [], 0
    if rows:
        yield from _batches(rows, options)


def _split(
    message: StreamMessage, options: SourceOptions, decompressor: ZstdDecompressor
) -> Iterator[_Row]:
    subject, sequence, stored_at, headers, stored, _ = message
    shown = headers if options.headers else None
    width = len(subject)
    if shown:  # a message may have many and long ones
        width += sum(map(len, chain.from_iterable(shown.items())))
    # the broker writes nanoseconds; Spark counts microseconds
    host = parse_subject(subject)
    of_host = (host.partition, host.host) if host else (None, None)
    of_message = *of_host, sequence, stored_at // 1000, subject, shown
    alone = width, None, None, 0, 0, ""
    try:
        origin = decode_origin(headers)
        payload = decode_payload(headers, stored, decompressor)
        parts = split_sections(origin, payload) if origin else ()
    except MalformedMessage:
        yield *of_message, stored, None, *alone
        return
    if origin is None and payload:
        payload += b"" if payload.endswith(b"\n") else b"\n"
        yield *of_message, payload, payload.count(b"\n"), *alone
    before = 0
    for number, (section, part) in enumerate(parts):
        path, count = section.path, part.count(b"\n")
        if part or not options.explode:  # else a filter left out all of its lines
            span = section.span
            place = None if options.explode else (span.file_id, span.start, span.end)
            about = width + len(path), path, place, number, before, section.records
            yield *of_message, part, count, *about
        before += count + bool(part and not part.endswith(b"\n"))


def _batches(rows: list[_Row], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(columns(options), timezone="UTC")
    sections = _Sections(*zip(*rows, strict=True))
    of_sections = [one for one in schema if one.name in _Sections._fields]
    shared = {one.name: _array(getattr(sections, one.name), one.type) for one in of_sections}
    if not options.explode:
        yield _batch(shared, schema, len(rows))
        return
    lines = _Lines(sections)
    made = {name: getattr(lines, name) for name in schema.names if name not in shared}
    # the other columns may be much longer than the line
    step = max(1, _BATCH_BYTES // (64 + max(sections.width)))
    for begin in range(0, len(lines.parents), step):
        part = lines.parents.slice(begin, step)
        cut = {name: column.take(part) for name, column in shared.items()}
        cut |= {name: column.slice(begin, step) for name, column in made.items()}
        yield _batch(cut, schema, len(part))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):  # half the work of pairs of Python
        offsets = pa.array(accumulate(map(len, values), initial=0), pa.int32())
        texts = chain.from_iterable(values), chain.from_iterable(one.values() for one in values)
        return pa.MapArray.from_arrays(offsets, *(_array(list(one), pa.string()) for one in texts))
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # a path, subject or header has bytes that are not UTF-8
        raw = [one and one.encode("utf-8", "surrogateescape") for one in values]
        return pa.array([one and one.decode("utf-8", "replace") for one in raw], kind)


def _batch(made: dict[str, pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not schema.names:  # a query that only counts
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


class _Lines:
    """The columns that only lines have; `parents` are the indices of the lines' sections."""

    def __init__(self, sections: _Sections) -> None:
        self._sections = sections
        known = zip(sections.payload, sections.lines, strict=True)
        self._payloads = [b"" if n is None else lines.removesuffix(b"\n") for lines, n in known]
        self._lists = pc.split_pattern(pa.array(self._payloads, pa.binary()), "\n")
        self.parents = pc.list_parent_indices(self._lists)
        self._numbers = pa.arange(0, len(self.parents)).cast(pa.int32())

    @cached_property
    def pos(self) -> pa.Array:
        begins = pc.subtract(pa.array(self._sections.before, pa.int32()), self._lists.offsets[:-1])
        return pc.add(self._numbers, begins.take(self.parents))

    @cached_property
    def line(self) -> pa.Array:
        try:
            line = self._lists.flatten().cast(pa.string())
        except pa.ArrowInvalid:  # Spark's strings are UTF-8; other bytes become U+FFFD
            readable = [payload.decode("utf-8", "replace") for payload in self._payloads]
            line = pc.split_pattern(pa.array(readable, pa.string()), "\n").flatten()
        if None in self._sections.lines:
            known = pa.array(self._sections.lines, pa.int32()).is_valid()
            line = pc.if_else(known.take(self.parents), line, None)
        return line

    @cached_property
    def piece(self) -> pa.Array:
        """Which lines end without a newline: last ones of a section, where it has none."""
        payloads = enumerate(self._sections.payload, 1)
        ends = [number for number, lines in payloads if not lines.endswith(b"\n")]
        last = pc.subtract(self._lists.offsets.take(pa.array(ends, pa.int32())), 1)
        return pc.is_in(self._numbers, last)

    @cached_property
    def record(self) -> pa.Array:
        """The `pos` of the line that begins the record of each line."""
        named, offsets = self._sections.records, self._lists.offsets
        if not any(named):
            return self.pos
        columns, begin = list[pa.Array](), 0
        for name, group in groupby(named):
            end = begin + len(list(group))
            first, last = offsets[begin].as_py(), offsets[end].as_py()
            pos, lines = (one.slice(first, last - first) for one in (self.pos, self._lists.values))
            if records := parse_records(name):
                pos = _find_records(records, lines, pc.subtract(offsets[begin:end], first), pos)
            columns.append(pos)
            begin = end
        return pa.concat_arrays(columns)


def _find_records(
    records: Records, lines: pa.Array, sections: pa.Array, numbers: pa.Array
) -> pa.Array:
    """Return the number of the line that begins the record of each line.

    NULL for the rest of a record that began in an earlier message. Sections begin at the indices
    given. RE2 searches the lines, and `Records` has bounded the expression: a stranger wrote it.
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
