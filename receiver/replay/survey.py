"""What there is to replay: asks the broker which partitions there are, and where in the stream times lie. Reads only."""

from dataclasses import dataclass
from datetime import UTC

from broker.app.exits import ConfigurationError
from broker.app.moment import Moment
from broker.client.access import Access
from broker.client.connection import Connection
from broker.wire.streams import STREAM
from receiver.source.ranges import StreamState
from receiver.source.survey import look, partitions_of, sequence_at

__all__ = ["Span", "Wanted", "survey"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for; `partitions` None is all, `until` None is whatever there is by now."""

    servers: tuple[str, ...]
    partitions: tuple[int, ...] | None
    since: Moment
    until: Moment | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """The sequences `[first, until)` of `partitions`.

    `earliest` is the first sequence that the stream holds at all; `gone` says what of the time asked for it no longer
    holds, empty for nothing.
    """

    partitions: tuple[int, ...]
    first: int
    until: int
    earliest: int
    gone: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.first >= self.until or not self.partitions


async def survey(wanted: Wanted, access: Access) -> Span:
    """Ask the broker and return what there is; raises `BrokerAway`, `ConfigurationError`, `StreamUnreadable`."""
    connection = Connection(wanted.servers, "logreceiver replay", access=access)
    try:
        state = await look(connection, STREAM)
        everywhere = tuple(range(await partitions_of(connection)))
        first = await _sequence(connection, wanted.since, state)
        until = await _sequence(connection, wanted.until, state)
    finally:
        await connection.close()
    return Span(
        _chosen(wanted.partitions, everywhere),
        max(first, state.first),
        min(until, state.until),
        state.first,
        _gone(wanted.since, state, first),
    )


async def _sequence(connection: Connection, moment: Moment | None, state: StreamState) -> int:
    if isinstance(moment, int):
        return moment
    found = None if moment is None else await sequence_at(connection, STREAM, moment)
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
