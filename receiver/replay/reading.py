"""Which part of the streams is read again, and its lines as a receiver would have written them; moves no offset and makes no consumer."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from heapq import merge
from itertools import chain, takewhile

import click

from broker.app.exits import ConfigurationError
from broker.app.selection import LineSelection
from broker.app.units import Moment, read_moment
from broker.client.access import Access
from broker.client.config import require_layout
from broker.client.connection import Connection
from broker.wire.message import MAX_LINES_BYTES, MalformedMessage
from broker.wire.subjects import InvalidHost, InvalidSubject, partition_filter
from receiver.consume import background
from receiver.consume.judging import Judge, Piece
from receiver.source.planning import look, sequence_at
from receiver.source.ranges import Range, StreamEnds
from receiver.source.reading import SourceMessage, read
from receiver.status.status import partitions_there
from receiver.zones import named_zone

__all__ = [
    "Counts",
    "LineReader",
    "LineRun",
    "RefusedMessage",
    "ReplaySpan",
    "StreamSpan",
    "find_span",
    "hosts_that_moved",
    "moment_of",
]

_MOST_HELD = MAX_LINES_BYTES
"""Bytes of lines that a run holds before it ends: a few KiB of zstd may decompress to a thousand times as much."""


@dataclass(frozen=True, slots=True)
class StreamSpan:
    """The sequences `[first, until)` of a stream, of which `earliest` is the first that it still holds.

    `gone` says what of the time asked for it no longer holds, empty for nothing.
    """

    stream: str
    first: int
    until: int
    earliest: int
    gone: str = ""

    @property
    def length(self) -> int:
        """How many sequences there are."""
        return max(0, self.until - self.first)


@dataclass(frozen=True, slots=True)
class ReplaySpan:
    """A part of each stream, of which `partitions` are wanted."""

    partitions: tuple[int, ...]
    streams: tuple[StreamSpan, ...]

    @property
    def length(self) -> int:
        """How many sequences there are in all."""
        return sum(one.length for one in self.streams) if self.partitions else 0

    @property
    def gone(self) -> str:
        """What of the time asked for the streams no longer hold, empty for nothing."""
        return "; ".join(one.gone for one in self.streams if one.gone)


def moment_of(option: str, text: str, now: datetime, zone: str) -> Moment:
    """Return the place in the stream that an option names; raises click.UsageError."""
    try:
        return read_moment(text, now, named_zone(zone))
    except ValueError as error:
        raise click.UsageError(f"--{option}: {error}") from None


async def find_span(
    connection: Connection,
    partitions: tuple[int, ...] | None,
    since: Moment,
    until: Moment | None = None,
) -> ReplaySpan:
    """Ask the broker which sequences lie between two moments; all partitions and all that is there by now for None.

    Raises `BrokerAway`, `ConfigurationError`, `StreamUnreadable`, `click.UsageError`.
    """
    layout = await require_layout(connection)
    number = await partitions_there(connection, layout)
    names = layout.names
    if len(names) > 1 and any(isinstance(one, int) and one > 1 for one in (since, until)):
        raise click.UsageError(
            f"a sequence is a place in one stream, and there are {len(names)}; give a time"
        )
    streams = [await _stream(connection, name, since, until) for name in names]
    return ReplaySpan(_chosen(partitions, number), tuple(streams))


async def _stream(
    connection: Connection, name: str, since: Moment, until: Moment | None
) -> StreamSpan:
    ends = await look(connection, name)
    first = await _sequence(connection, since, ends)
    end = await _sequence(connection, until, ends)
    gone = _gone(since, ends, first)
    return StreamSpan(*(name, max(first, ends.first), min(end, ends.until), ends.first), gone=gone)


async def hosts_that_moved(connection: Connection, streams: Iterable[str]) -> frozenset[str]:
    """Return the hosts of which the streams hold lines in more than one partition; raises `Rejected`, `ConnectionLost`.

    A partition that holds one message of a host holds the claim by which it left.
    """
    partitions = Counter[str]()
    for stream in streams:
        offset, total = 0, 1
        while offset < total:
            asked = {"subjects_filter": "logs.>", "offset": offset}
            answer = await connection.api(f"STREAM.INFO.{stream}", asked)
            counts = answer["state"].get("subjects") or {}
            partitions.update(subject.split(".", 2)[2] for subject, n in counts.items() if n > 1)
            offset, total = offset + max(1, len(counts)), answer.get("total", 0)
    return frozenset(host for host, count in partitions.items() if count > 1)


async def _sequence(connection: Connection, moment: Moment | None, ends: StreamEnds) -> int:
    if isinstance(moment, int):
        return moment
    found = None if moment is None else await sequence_at(connection, ends.name, moment)
    return ends.until if found is None else found


def _chosen(wanted: tuple[int, ...] | None, number: int) -> tuple[int, ...]:
    chosen = tuple(range(number)) if wanted is None else tuple(sorted(set(wanted)))
    if beyond := [one for one in chosen if one >= number]:
        raise ConfigurationError(
            f"partition {beyond[0]} does not exist: the broker has {number}, 0 to {number - 1}; give another --partition, or all"
        )
    return chosen


def _gone(since: Moment, ends: StreamEnds, first: int) -> str:
    if isinstance(since, int):
        return f"sequences {max(since, 1)} to {ends.first - 1}" if 0 < since < ends.first else ""
    if first <= ends.first and ends.first > 1:
        return f"what was stored since {since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} and before sequence {ends.first}"
    return ""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was read: `size` in bytes of lines, `refused` messages without lines, `findings` gaps and repeats of files."""

    lines: int = 0
    size: int = 0
    refused: int = 0
    findings: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Return both together."""
        return Counts(
            self.lines + other.lines,
            self.size + other.size,
            self.refused + other.refused,
            self.findings + other.findings,
        )


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that holds no lines that could be written, and why."""

    message: SourceMessage
    reason: str

    @property
    def partition(self) -> int:
        """The partition that its subject names."""
        return int(_partition_of(self.message).removeprefix("p"))

    @property
    def stored_at(self) -> int:
        """When it was stored, in nanoseconds since the epoch."""
        return _nanoseconds(self.message)


@dataclass(frozen=True, slots=True)
class LineRun:
    """Lines in their order, and the messages among them that were refused; `passed` is how many sequences these were."""

    passed: int
    pieces: tuple[Piece, ...]
    refused: tuple[RefusedMessage, ...]
    findings: int

    @property
    def counts(self) -> Counts:
        """What it holds."""
        lines = sum(piece.payload.count(b"\n") for piece in self.pieces)
        size = sum(len(piece.payload) for piece in self.pieces)
        return Counts(lines, size, len(self.refused), self.findings)

    @property
    def newest(self) -> int:
        """When the youngest of its lines was stored, 0 for none."""
        return max((piece.stored_at for piece in self.pieces), default=0)

    def cut(self, until: int) -> "tuple[LineRun, LineRun | None]":
        """Return its beginning, as far as nothing in it is younger than a time, and the rest, None for nothing."""
        early = tuple(takewhile(lambda piece: piece.stored_at <= until, self.pieces))
        late = self.pieces[len(early) :]
        return replace(self, pieces=early), LineRun(0, late, (), 0) if late else None


@dataclass(frozen=True, slots=True)
class LineReader:
    """How to reach the stream, and which hosts and files are wanted of it."""

    servers: tuple[str, ...]
    access: Access
    selection: LineSelection

    def span(self, span: ReplaySpan) -> Iterator[LineRun]:
        """Yield the lines of a span in the order in which the broker stored them.

        A run is of about 8 MiB as stored or 16 MiB of lines. What retention has removed is left out. Raises what
        `reread.read` raises.
        """
        wanted = {f"p{number}" for number in span.partitions}
        subject = partition_filter(span.partitions[0]) if len(wanted) == 1 else "logs.>"
        streams = [
            self._runs(one, subject, lambda message: _partition_of(message) in wanted)
            for one in span.streams
            if one.length
        ]
        return streams[0] if len(streams) == 1 else _merged(streams)

    def host(self, partition: int, host: str, span: StreamSpan) -> Iterator[LineRun]:
        """Yield the lines of a host in a partition, as `span` does: the broker sends no others."""
        return self._runs(span, f"logs.p{partition}.{host}", lambda _: True)

    def _runs(
        self, span: StreamSpan, subject: str, wants: Callable[[SourceMessage], bool]
    ) -> Iterator[LineRun]:
        connection = background.connection(self.servers, self.access)
        judge = Judge(wants=self.selection.wants_file)
        item = Range(subject, span.first, span.until, span.stream)
        passed = span.first
        for messages in read(connection, item):
            pieces: list[Piece] = []
            refused: list[RefusedMessage] = []
            size, before = 0, judge.found
            for message in messages:
                if wants(message) and self.selection.wants_host(_host_of(message)):
                    try:
                        found = _pieces(judge, message)
                    except (MalformedMessage, InvalidHost, InvalidSubject) as error:
                        refused.append(RefusedMessage(message, str(error)))
                    else:
                        pieces += found
                        size += sum(len(piece.payload) for piece in found)
                if size >= _MOST_HELD or message is messages[-1]:
                    findings, until = judge.found - before, message.sequence + 1
                    yield LineRun(until - passed, tuple(pieces), tuple(refused), findings)
                    pieces, refused = [], []
                    size, before, passed = 0, judge.found, until
                    judge.forget_findings()


def _merged(streams: Iterable[Iterator[LineRun]]) -> Iterator[LineRun]:
    """Yield the runs of several streams as those of one, by when the broker stored what is in them."""
    heads = [(runs, run) for runs in streams if (run := next(runs, None))]
    while heads:
        until = min(run.newest for _, run in heads)
        early, left = [], []
        for runs, run in heads:
            before, behind = run.cut(until)
            early.append(before)
            if following := behind or next(runs, None):
                left.append((runs, following))
        heads = left
        yield LineRun(
            sum(run.passed for run in early),
            tuple(merge(*(run.pieces for run in early), key=lambda piece: piece.stored_at)),
            tuple(chain.from_iterable(run.refused for run in early)),
            sum(run.findings for run in early),
        )


def _pieces(judge: Judge, message: SourceMessage) -> list[Piece]:
    return judge.take(
        message.subject,
        message.headers,
        message.payload,
        message.sequence,
        _nanoseconds(message),
    )


def _host_of(message: SourceMessage) -> str:
    return message.subject.split(".", 2)[-1]


def _partition_of(message: SourceMessage) -> str:
    return message.subject.split(".", 2)[1]


def _nanoseconds(message: SourceMessage) -> int:
    second, _, fraction = message.time.removesuffix("Z").partition(".")
    return _second(second) * 1_000_000_000 + int(fraction.ljust(9, "0"))


@lru_cache(64)
def _second(time: str) -> int:
    return int(datetime.fromisoformat(f"{time}+00:00").timestamp())
