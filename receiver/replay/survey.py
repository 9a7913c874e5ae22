"""What there is to replay: asks the broker which partitions there are, and where in the streams times lie. Reads only."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC

import click

from broker.app.exits import ConfigurationError
from broker.app.moment import Moment
from broker.client.connection import Connection, Rejected
from broker.client.partitions import existing_partitions
from broker.wire.streams import StreamLayout
from receiver.source.ranges import StreamState
from receiver.source.survey import layout_of, look, sequence_at

__all__ = ["Span", "StreamSpan", "Wanted", "hosts_that_moved", "survey"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for; `partitions` None is all, `until` None is whatever there is by now."""

    partitions: tuple[int, ...] | None
    since: Moment
    until: Moment | None = None


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
class Span:
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


async def survey(connection: Connection, wanted: Wanted) -> Span:
    """Ask the broker and return what there is; raises `BrokerAway`, `ConfigurationError`, `StreamUnreadable`."""
    layout = await layout_of(connection)
    everywhere = tuple(range(await _existing(connection, layout)))
    names = layout.names
    places = (one for one in (wanted.since, wanted.until) if isinstance(one, int))
    if len(names) > 1 and any(place > 1 for place in places):
        raise click.UsageError(
            f"a sequence is a place in one stream, and there are {len(names)}; give a time"
        )
    streams = [await _stream(connection, name, wanted) for name in names]
    return Span(_chosen(wanted.partitions, everywhere), tuple(streams))


async def _stream(connection: Connection, name: str, wanted: Wanted) -> StreamSpan:
    state = await look(connection, name)
    first = await _sequence(connection, name, wanted.since, state)
    until = await _sequence(connection, name, wanted.until, state)
    gone = _gone(wanted.since, state, first)
    return StreamSpan(
        *(name, max(first, state.first), min(until, state.until), state.first), gone=gone
    )


async def _existing(connection: Connection, layout: StreamLayout) -> int:
    """Return how many partitions there are, with those that hosts have left where the rights suffice to ask."""
    with suppress(Rejected):
        return max(layout.partitions, await existing_partitions(connection))
    return layout.partitions


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


async def _sequence(
    connection: Connection, stream: str, moment: Moment | None, state: StreamState
) -> int:
    if isinstance(moment, int):
        return moment
    found = None if moment is None else await sequence_at(connection, stream, moment)
    return state.until if found is None else found


def _chosen(wanted: tuple[int, ...] | None, everywhere: tuple[int, ...]) -> tuple[int, ...]:
    if wanted is None:
        return everywhere
    if beyond := sorted(set(wanted) - set(everywhere)):
        raise ConfigurationError(
            f"partition {beyond[0]} does not exist: the broker has {len(everywhere)}, 0 to "
            f"{len(everywhere) - 1}; give another --partition, or all"
        )
    return tuple(sorted(set(wanted)))


def _gone(since: Moment, state: StreamState, first: int) -> str:
    if isinstance(since, int):
        return f"sequences {max(since, 1)} to {state.first - 1}" if 0 < since < state.first else ""
    if first <= state.first and state.first > 1:
        return f"what was stored since {since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} and before sequence {state.first}"
    return ""
