"""Which part of the streams is read again: asks the broker which partitions there are, and where in the streams times lie."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from broker.app.exits import ConfigurationError
from broker.app.units import Moment, read_moment
from broker.client.config import require_layout
from broker.client.connection import Connection
from receiver.source.planning import look, sequence_at
from receiver.source.ranges import StreamEnds
from receiver.status.status import partitions_there
from receiver.zones import named_zone

__all__ = ["ReplaySpan", "StreamSpan", "find_span", "hosts_that_moved", "moment_of"]


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
