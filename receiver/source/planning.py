"""Asks the broker what a stream holds, how many partitions there are, and where a time lies in it. Reads only."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from broker.app.exits import ConfigurationError, OperatorError
from broker.client.answer import is_certain
from broker.client.config import read_layout
from broker.client.connection import Connection, ConnectionLost, Denied, Rejected
from broker.wire.streams import STREAM
from receiver.consume import background
from receiver.source.options import PROGRAM, Edge, Position, SourceOptions
from receiver.source.ranges import Range, StreamEnds, kept
from receiver.source.reading import patiently, request_batch

__all__ = [
    "StreamUnreadable",
    "ask",
    "look",
    "refuse_loss",
    "sequence_at",
    "sequence_of",
    "streams_of",
]

_NO_STREAM = 10059
_LOOKS, _AGAIN = 40, 0.5  # how often, and seconds between: longer than an election takes
_LAGS = 6  # how often a replica is asked that lags
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = datetime(2262, 1, 1, tzinfo=UTC)  # the server counts nanoseconds in 63 bits
_PLANNING = 60.0  # seconds for all questions of one planning step
Answer = TypeVar("Answer")


class StreamUnreadable(OperatorError):
    """The broker is there and does not let the stream be read."""


def ask(
    options: SourceOptions, question: Callable[[Connection], Coroutine[Any, Any, Answer]]
) -> Answer:
    """Return the answer to a question of planning, asked on the connection of this process."""
    connection = background.connection(options.servers, options.access, PROGRAM)
    try:
        return background.wait(question(connection), _PLANNING)
    except TimeoutError:
        raise StreamUnreadable(
            f"{connection.servers}: no answer about the streams in {_PLANNING:g} s"
        ) from None
    except OperatorError as error:
        # Spark shows the whole traceback of an error; the message is at its end
        raise error.with_traceback(None) from None


async def streams_of(connection: Connection, options: SourceOptions) -> tuple[str, ...]:
    """Return the streams that a query reads: the one that is named, or all that partitions live in.

    Raises `ConfigurationError` where a sequence is to be the same place in several streams, `BrokerAway`, `ConnectionLost`.
    """
    if options.stream is not None:
        return (options.stream,)
    await connection.once()
    try:
        layout = await patiently(connection, lambda: read_layout(connection))
    except Rejected:
        layout = None  # that's fine: a stream without our buckets
    names = layout.names if layout else (STREAM,)
    if len(names) > 1 and any(isinstance(one, int) for one in (options.starting, options.ending)):
        raise ConfigurationError(
            f"sequences count within a stream, and the broker has {len(names)}: name one by the option stream, or give "
            "startingTimestamp and endingTimestamp"
        )
    return names


async def look(connection: Connection, stream: str) -> StreamEnds:
    """Return what the stream holds now.

    Raises `BrokerAway` at once when there is no broker, `ConfigurationError` when there is no such stream,
    `StreamUnreadable`, `ConnectionLost`.
    """
    await connection.once()
    try:
        answer = await _certain(connection, stream)
    except Rejected as error:
        if error.error == _NO_STREAM:
            raise ConfigurationError(
                f"there is no stream {stream} at {connection.servers}; check the option stream, "
                "or run `logbroker apply`"
            ) from None
        raise StreamUnreadable(f"stream {stream} at {connection.servers}: {error}") from None
    state = answer["state"]
    until = state["last_seq"] + 1
    first = state["first_seq"] if state["messages"] else until
    return StreamEnds(
        *(first, until, state["messages"], state["bytes"], _microseconds(answer["created"])),
        name=stream,
    )


async def _certain(connection: Connection, stream: str) -> dict[str, Any]:
    """Ask until the answer is that of a leader: by another's a stream may seem to have been rewound."""
    for _ in range(_LOOKS):
        answer = await connection.api(f"STREAM.INFO.{stream}")
        if is_certain(answer):
            return answer
        await asyncio.sleep(_AGAIN)
    raise StreamUnreadable(
        f"stream {stream} at {connection.servers} has no leader that is sure of it"
    )


async def refuse_loss(connection: Connection, item: Range) -> None:
    """Raise `LostSequences` where retention has removed some of what is still to be read of a range."""
    ends = await patiently(connection, lambda: look(connection, item.stream))
    kept(item.first, item.until, ends, fail=True)


async def sequence_of(connection: Connection, position: Position, state: StreamEnds) -> int:
    """Return the sequence that `position` means: the first to read, or the first not to read."""
    if isinstance(position, int):
        return position
    if position is Edge.EARLIEST:
        return state.first
    if isinstance(position, datetime):
        found = await sequence_at(connection, state.name, position)
        return state.until if found is None else min(found, state.until)
    return state.until


async def sequence_at(connection: Connection, stream: str, time: datetime) -> int | None:
    """Return the first sequence stored at `time` or later, None when there is none yet."""
    known = max(_EPOCH, min(time, _LAST_TIME)).astimezone(UTC)
    for _ in range(_LAGS):
        if (found := await _first_since(connection, stream, known)) is not None:
            return found
        state = (await _certain(connection, stream))["state"]
        if not state["messages"] or datetime.fromisoformat(state["last_ts"]) < known:
            return None
        await asyncio.sleep(_AGAIN)  # the replica that has answered lags behind the leader
    return None


async def _first_since(connection: Connection, stream: str, time: datetime) -> int | None:
    request = {"start_time": time.isoformat(), "batch": 1}
    try:
        found = await request_batch(connection, stream, request)
    except Denied as error:
        raise StreamUnreadable(error.description) from None
    except ConnectionLost:
        raise StreamUnreadable(f"stream {stream}: no answer to where {time} lies in it") from None
    return found[0].sequence if found else None


def _microseconds(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)
