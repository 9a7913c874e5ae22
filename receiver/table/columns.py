"""Turns messages of a stream into the rows of a table: Arrow does all work that is done by line.

`SectionLines` are the part of a message from one file, and the unit that Python handles. Rows are
sorted by host before they exist: parts are, and within a host they stay in the order of the stream.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from zstandard import ZstdDecompressor

from nats_logship.wire.containers import name_container
from nats_logship.wire.message import (
    MalformedMessage,
    decode_origin,
    decode_payload,
    split_sections,
)
from nats_logship.wire.records import parse_records
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.subjects import InvalidHost, InvalidSubject, Subject
from receiver.table.level import find_levels
from receiver.table.line_time import read_times
from receiver.table.parquet import TableForm
from receiver.table.record import number_records

FILE_BYTES = 96 * 1024 * 1024
"""Memory for the messages of one file, as stored: a task sorts them by host, then reads them."""
GROUP_BYTES = 24 * 1024 * 1024
"""Lines of one row group at most."""

_MESSAGE_BYTES = 1200  # that a message takes in memory besides its payload and its headers
_PART_BYTES = 300  # and a part, besides its payload
_LINE_BYTES = 80  # that a line counts at least, as its other columns take memory too
Item = TypeVar("Item")
_TIME = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("date", pa.date32()),
        ("time", _TIME),
        ("host", pa.string()),
        ("file", pa.string()),
        ("stream", pa.string()),
        ("sequence", pa.int64()),
        ("pos", pa.int32()),
        ("line", pa.string()),
        ("level", pa.string()),
        ("ts", _TIME),
        ("raw", pa.binary()),
        ("piece", pa.bool_()),
        ("record", pa.int32()),
        ("container", pa.string()),
        ("pod", pa.string()),
        ("namespace", pa.string()),
    ]
)
LINES = TableForm(
    name="lines",
    schema=_SCHEMA,
    names=("host", "file", "stream", "level", "container", "pod", "namespace"),
    statistics=("time", "host", "stream", "sequence"),
    sort_by="host",
)
"""The table `lines`."""
_FILE_SCHEMA = LINES.file_schema


class SectionLines(NamedTuple):
    """Lines of one section of a message, never empty; `before` counts the message's lines before.

    `file` is empty for messages of other NATS clients, `records` as `Section` has it.
    A section of very many lines has several parts.
    """

    host: str
    file: str
    sequence: int
    stored_at: int
    before: int
    payload: bytes
    lines: int
    records: str = ""

    @property
    def width(self) -> int:
        """The bytes that it takes of a row group."""
        return max(len(self.payload), _LINE_BYTES * self.lines) + len(self.file) + _PART_BYTES


class Unreadable(NamedTuple):
    """A message that cannot be read, and why; its payload as stored."""

    subject: str
    sequence: int
    stored_at: int
    reason: str
    payload: bytes


@dataclass(slots=True)
class Splitter:
    """Splits messages into parts, and collects those that cannot be read."""

    unreadable: list[Unreadable] = field(default_factory=list)
    _decompressor: ZstdDecompressor = field(default_factory=ZstdDecompressor)

    def split(self, message: StreamMessage) -> list[SectionLines]:
        """Return the parts of a message, each for one row group.

        None for a claim, or if a filter left out all lines.
        """
        try:
            return self._split(message)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            self.unreadable.append(
                Unreadable(
                    subject=_as_text(message.subject),
                    sequence=message.sequence,
                    stored_at=message.stored_at,
                    reason=_as_text(str(error)),
                    payload=message.payload,
                )
            )
            return []

    def _split(self, message: StreamMessage) -> list[SectionLines]:
        host, origin = _parse_host(message.subject), decode_origin(message.headers)
        payload = decode_payload(message.headers, message.payload, self._decompressor)
        if origin is None:
            if payload and not payload.endswith(b"\n"):
                payload += b"\n"
            sections = [("", "", payload)]
        else:
            found = split_sections(origin, payload)
            sections = [(_as_text(one.path), one.records, lines) for one, lines in found]
        parts, before = list[SectionLines](), 0
        for path, records, lines in sections:
            if lines:
                count = lines.count(b"\n") + (not lines.endswith(b"\n"))
                key = host, path, message.sequence, message.stored_at
                parts += _cut(SectionLines(*key, before, lines, count, records))
                before += count
        return parts


def find_host(message: StreamMessage) -> str:
    """Return the host of a message; empty if its subject cannot be read."""
    try:
        return _parse_host(message.subject)
    except (InvalidHost, InvalidSubject):
        return ""


def weigh_message(message: StreamMessage) -> int:
    """Return the bytes that a message takes in memory, about."""
    headers = sum(len(name) + len(value) for name, value in message.headers.items())
    return len(message.payload) + headers + _MESSAGE_BYTES


def _cut(part: SectionLines) -> Iterator[SectionLines]:
    """Yield a part in pieces that fit into a row group: it may have 16 million empty lines."""
    if part.width <= GROUP_BYTES or part.lines < 2:
        yield part
        return
    at = _find_cut(part)
    count, begin, rest = part.payload.count(b"\n", 0, at), part.payload[:at], part.payload[at:]
    yield from _cut(part._replace(payload=begin, lines=count))
    behind = part._replace(payload=rest, lines=part.lines - count, before=part.before + count)
    yield from _cut(behind)


def _find_cut(part: SectionLines) -> int:
    """Return where the last record, else the last line, of the first half of a part begins."""
    lines, half = part.payload, len(part.payload) // 2
    at = lines.rfind(b"\n", 0, half) + 1 or lines.find(b"\n", half) + 1
    records = parse_records(part.records) if part.records else None
    found = records.find_boundaries(lines, 0, at) if records else []
    return (found[-1][1] if found else at) or at


@lru_cache(16_384)
def _parse_host(subject: str) -> str:
    return Subject.parse(subject).host


def _as_text(value: str) -> str:
    """Return a text without bytes that are not UTF-8: a path may have such."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def make_rows(parts: Sequence[SectionLines], stream: str) -> pa.Table:
    """Return a row for each line, with the columns of `LINES.file_schema`; `line` has no newline.

    `stream` names the stream and its creation.
    """
    payloads = [part.payload.removesuffix(b"\n") for part in parts]
    lists = pc.split_pattern(pa.array(payloads, pa.binary()), "\n")
    lines, parents = lists.flatten(), pc.list_parent_indices(lists)
    line, raw = _decode(lines, payloads)
    starts = lists.offsets.slice(0, len(parts))
    numbers = pa.arange(0, len(line)).cast(pa.int32())
    before = pa.array([part.before for part in parts], pa.int32())
    pos = pc.add(numbers, pc.subtract(before, starts).take(parents))
    time = pa.array([part.stored_at // 1000 for part in parts], _TIME).take(parents)
    columns = {
        "time": time,
        "sequence": pa.array([part.sequence for part in parts], pa.int64()).take(parents),
        "pos": pos,
        "line": line,
        "level": find_levels(line),
        "ts": read_times(line, time),
        "raw": raw,
        "piece": _mark_pieces(parts, lists.offsets, len(line)),
        "record": _find_records(parts, lines, pos),
        **{name: _repeat(parts, value, parents) for name, value in _NAMED.items()},
        "stream": _repeat(parts, lambda _: stream, parents),
    }
    return pa.table([columns[name] for name in _FILE_SCHEMA.names], schema=_FILE_SCHEMA)


def _find_records(parts: Sequence[SectionLines], lines: pa.Array, pos: pa.Array) -> pa.Array:
    """Return the position of the line that begins the record of each line."""
    if not any(part.records for part in parts):
        return pos
    begin, found = 0, list[pa.Array]()
    for text, run in groupby(parts, attrgetter("records")):
        counts = [part.lines for part in run]
        count = sum(counts)
        own = pos.slice(begin, count)
        if records := parse_records(text) if text else None:
            starts = pa.array([0, *accumulate(counts[:-1])], pa.int64())
            own = number_records(records, lines.slice(begin, count), own, starts)
        found.append(own)
        begin += count
    return pa.concat_arrays(found)


def _decode(raw: pa.Array, payloads: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    """Return lines as text, and the bytes of those that are not UTF-8 (None for the others)."""
    try:
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.binary())
    except pa.ArrowInvalid:
        # a newline is never part of a longer character, so both have the same lines
        readable = [payload.decode("utf-8", "replace").encode() for payload in payloads]
        line = pc.split_pattern(pa.array(readable, pa.binary()), "\n").flatten()
        is_other = pc.not_equal(line, raw)
        return line.cast(pa.string()), pc.if_else(is_other, raw, pa.scalar(None, pa.binary()))


def _mark_pieces(parts: Sequence[SectionLines], offsets: pa.Array, rows: int) -> pa.Array:
    """Return which lines end without a newline: the last one of a part whose payload has none."""
    ends = [number for number, part in enumerate(parts) if not part.payload.endswith(b"\n")]
    if not ends:
        return pa.repeat(pa.scalar(False), rows)
    last = pc.subtract(offsets.take(pa.array([number + 1 for number in ends])), 1)
    return pc.is_in(pa.arange(0, rows), last.cast(pa.int64()))


def _repeat(
    parts: Sequence[SectionLines], value: Callable[[SectionLines], str | None], parents: pa.Array
) -> pa.Array:
    """Return a value of each part, in a dictionary, for each of its lines."""
    return pa.array(list(map(value, parts)), pa.string()).dictionary_encode().take(parents)


_NAMED: dict[str, Callable[[SectionLines], Any]] = {
    "host": lambda part: part.host,
    "file": lambda part: part.file or None,
    "container": lambda part: name_container(part.file).get("container"),
    "pod": lambda part: name_container(part.file).get("pod"),
    "namespace": lambda part: name_container(part.file).get("namespace"),
}


def cut_groups(
    items: Iterable[Item], most: int, weigh: Callable[[Item], int]
) -> Iterator[list[Item]]:
    """Yield items in runs of at most `most` bytes, a larger item alone."""
    group, size = list[Item](), 0
    for item in items:
        width = weigh(item)
        if group and size + width > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += width
    if group:
        yield group
