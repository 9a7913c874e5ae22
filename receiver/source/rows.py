"""Turns stored messages into Arrow's columns: a row for a block, or for each of its lines.

Nothing is done line by line: Arrow cuts the payloads of many blocks at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from broker.block import MalformedBlock, Origin, decode_origin, decode_payload
from broker.subjects import InvalidHost, InvalidSubject, Subject
from receiver.source.options import Show
from receiver.source.patterns import partition_in
from receiver.source.schema import HEADERS, SPAN, arrow_schema
from receiver.source.stored import Stored

__all__ = ["record_batches"]

_BATCH_BYTES = 4 * 1024 * 1024
"""About how much payload goes to Spark at once, unfolded, with the headers that came with it."""
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class _Place:
    subject: str
    partition: int | None
    host: str | None


@dataclass(slots=True)
class _Columns:
    """The rows of a batch so far, column by column; `lines` None marks a payload that is shown as it was sent."""

    sequences: list[int] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)
    origins: list[Origin | None] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    size: int = 0
    widest: int = 64  # characters of what stands in each row of a message beside the line

    def add(self, message: Stored, place: _Place) -> None:
        try:
            origin = decode_origin(message.headers)
            payload = decode_payload(message.headers, message.payload)
        except MalformedBlock:
            self._append(message, place, None, None, message.payload)
            return
        if origin is None and payload and not payload.endswith(b"\n"):
            payload += b"\n"
        if payload if origin is None else not origin.is_claim:
            self._append(message, place, origin, payload.count(b"\n"), payload)

    def _append(
        self,
        message: Stored,
        place: _Place,
        origin: Origin | None,
        lines: int | None,
        payload: bytes,
    ) -> None:
        self.sequences.append(message.sequence)
        self.times.append(message.time)
        self.places.append(place)
        self.origins.append(origin)
        self.lines.append(lines)
        self.payloads.append(payload)
        self.headers.append(message.headers)
        named = message.header_size
        self.size += len(payload) + named
        self.widest = max(self.widest, len(message.subject) + named)


def record_batches(
    messages: Iterable[Stored], show: Show, partitions: frozenset[int] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages in their order; claims and empty messages carry no lines and have no row.

    `payload` is unfolded, and gets the last newline that a foreign publisher left out, so that the payloads of a host
    in the order of `sequence` are its file. A message that breaks our rules has its payload as it was sent, and NULL
    for `lines`; with `explode` it is a single row whose `line` is NULL. Where `partitions` are named, others are left out.
    """
    columns = _Columns()
    for message in messages:
        place = _place(message.subject)
        if partitions and place.partition not in partitions:
            continue
        columns.add(message, place)
        if columns.size >= _BATCH_BYTES:
            yield from _batches(columns, show)
            columns = _Columns()
    if columns.sequences:
        yield from _batches(columns, show)


def _batches(columns: _Columns, show: Show) -> Iterator[pa.RecordBatch]:
    where: list[pa.Array] = [
        pa.array([place.partition for place in columns.places], pa.int32()),
        pa.array(columns.sequences, pa.int64()),
        _times(columns.times),
        pa.array([place.subject for place in columns.places], pa.string()),
        pa.array([place.host for place in columns.places], pa.string()),
        pa.array([_file(origin) for origin in columns.origins], pa.string()),
    ]
    headers = [_headers(columns.headers)] if show.headers else []
    schema = arrow_schema(show)
    if show.explode:
        parents, exploded = _exploded(columns, show.as_text)
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
    block = [
        _spans(columns.origins),
        pa.array(columns.lines, pa.int32()),
        pa.array(columns.payloads, pa.binary()),
    ]
    yield pa.RecordBatch.from_arrays([*where, *block, *headers], schema=schema)


def _times(texts: list[str]) -> pa.Array:
    # the broker writes nanoseconds; Spark counts microseconds
    return pa.array(texts).cast(pa.timestamp("ns", tz="UTC")).cast(_TIME, safe=False)


def _spans(origins: list[Origin | None]) -> pa.Array:
    spans = [origin.span if origin else None for origin in origins]
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


def _exploded(columns: _Columns, as_text: bool) -> tuple[pa.Array, list[pa.Array]]:
    cut = [payload.removesuffix(b"\n") for payload in columns.payloads]
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
    pos = pc.subtract(pa.arange(0, len(line)).cast(pa.int32()), lists.offsets.take(parents))
    if None in columns.lines:
        known = pa.array(columns.lines, pa.int32()).is_valid().take(parents)
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


def _file(origin: Origin | None) -> str | None:
    return None if origin is None else _text(origin.file)


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
