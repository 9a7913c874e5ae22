"""Which part of the streams is read again, and its lines as a receiver would have written them; moves no offset and makes no consumer."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from heapq import merge

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
    "LineReader",
    "LineRun",
    "RefusedMessage",
    "ReplaySpan",
    "StreamSpan",
    "find_span",
    "hosts_that_moved",
    "moment_of",
    "nanoseconds",
]

_MOST_MESSAGES = 2000  # of a run


@dataclass(frozen=True, slots=True)
class StreamSpan:
    """The sequences `[first, until)` of a stream, of which `earliest` is the first that it still holds.

    `gone` says what of the time asked for it no longer holds, empty for nothing.
    """

    stream: str
    first: int
    until: int
    earliest: int = 1
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


def moment_of(option: str, text: str, now: datetime, zone: str) -> Moment:
    """Return the place in the stream that an option names; raises click.UsageError."""
    try:
        return read_moment(text, now, named_zone(zone))
    except ValueError as error:
        raise click.UsageError(f"--{option}: {error}") from None


async def find_span(
    connection: Connection,
    partitions: Iterable[int] | None,
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
    chosen = tuple(sorted(range(number) if partitions is None else partitions))
    if beyond := [one for one in chosen if one >= number]:
        raise ConfigurationError(
            f"partition {beyond[0]} does not exist: the broker has {number}, 0 to {number - 1}; give another --partition, or all"
        )
    return ReplaySpan(
        chosen, tuple([await _stream(connection, name, since, until) for name in names])
    )


async def _stream(
    connection: Connection, name: str, since: Moment, until: Moment | None
) -> StreamSpan:
    ends = await look(connection, name)
    first, end = [await _sequence(connection, moment, ends) for moment in (since, until)]
    gone = ""
    if not isinstance(since, int):
        if first <= ends.first and ends.first > 1:
            gone = f"what was stored since {since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} and before sequence {ends.first}"
    elif 0 < since < ends.first:
        gone = f"sequences {since} to {ends.first - 1}"
    return StreamSpan(name, max(first, ends.first), min(end, ends.until), ends.first, gone)


async def _sequence(connection: Connection, moment: Moment | None, ends: StreamEnds) -> int:
    if isinstance(moment, int):
        return moment
    found = None if moment is None else await sequence_at(connection, ends.name, moment)
    return ends.until if found is None else found


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


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that holds no lines that could be written, and why."""

    message: SourceMessage
    reason: str


@dataclass(slots=True)
class LineRun:
    """Lines in the order in which the broker stored them; `findings` counts gaps and repeats of files in them."""

    pieces: list[Piece] = field(default_factory=list)
    refused: list[RefusedMessage] = field(default_factory=list)
    findings: int = 0


@dataclass(frozen=True, slots=True)
class LineReader:
    """How to reach the streams, and which hosts and files are wanted of them."""

    servers: tuple[str, ...]
    access: Access
    selection: LineSelection

    def span(self, span: ReplaySpan, advance: Callable[[int], None]) -> Iterator[LineRun]:
        """Yield the lines of a span in the order of storage, in runs of at most 16 MiB and a message more.

        What retention has removed is left out. `advance` is told how many sequences were read. Raises what
        `reading.read` raises.
        """
        wanted = {f"p{number}" for number in span.partitions}
        subject = partition_filter(span.partitions[0]) if len(wanted) == 1 else "logs.>"
        streams = [self._messages(subject, one, advance) for one in span.streams if one.length]
        return self._runs(
            one
            for one in merge(*streams, key=nanoseconds)
            if one.subject.split(".", 2)[1] in wanted
        )

    def host(self, partition: int, host: str, span: StreamSpan) -> Iterator[LineRun]:
        """Yield the lines of a host in a partition, as `span` does: the broker sends no others."""
        return self._runs(self._messages(f"logs.p{partition}.{host}", span, lambda _: None))

    def _messages(
        self, subject: str, span: StreamSpan, advance: Callable[[int], None]
    ) -> Iterator[SourceMessage]:
        connection, passed = background.connection(self.servers, self.access), span.first
        for messages in read(connection, Range(subject, span.first, span.until, span.stream)):
            yield from messages
            advance(messages[-1].sequence + 1 - passed)
            passed = messages[-1].sequence + 1

    def _runs(self, messages: Iterable[SourceMessage]) -> Iterator[LineRun]:
        judge = Judge(wants=self.selection.wants_file)
        run, size = LineRun(), 0
        for count, message in enumerate(messages, 1):
            if self.selection.wants_host(message.subject.split(".", 2)[-1]):
                try:
                    found = judge.take(
                        *(message.subject, message.headers, message.payload, message.sequence),
                        nanoseconds(message),
                    )
                except (MalformedMessage, InvalidHost, InvalidSubject) as error:
                    run.refused.append(RefusedMessage(message, str(error)))
                else:
                    run.pieces += found
                    size += sum(len(piece.payload) for piece in found)
            if size >= MAX_LINES_BYTES or not count % _MOST_MESSAGES:
                yield _counted(run, judge)
                run, size = LineRun(), 0
        yield _counted(run, judge)


def _counted(run: LineRun, judge: Judge) -> LineRun:
    run.findings = len(judge.findings)
    judge.findings.clear()
    return run


def nanoseconds(message: SourceMessage) -> int:
    """Return when a message was stored, in nanoseconds since the epoch."""
    second, _, fraction = message.time.removesuffix("Z").partition(".")
    return _second(second) * 1_000_000_000 + int(fraction.ljust(9, "0"))


@lru_cache(64)
def _second(time: str) -> int:
    return int(datetime.fromisoformat(f"{time}+00:00").timestamp())
