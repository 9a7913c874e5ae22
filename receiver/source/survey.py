"""Asks the broker what a stream holds, which partitions there are, and where a time lies in it. Reads only."""

from datetime import UTC, datetime

from broker.bucket import read
from broker.connection import Connection, ConnectionLost, Rejected
from broker.exits import ConfigurationError, OperatorError
from broker.topology import CONFIG_BUCKET, PARTITIONS_KEY
from receiver.source.direct import request_batch
from receiver.source.options import Edge, Position, SourceOptions
from receiver.source.ranges import StreamState

__all__ = ["StreamUnreadable", "look", "partitions_of", "place"]

_NO_STREAM = 10059


class StreamUnreadable(OperatorError):
    """The broker is there and does not let the stream be read."""


async def look(connection: Connection, stream: str) -> StreamState:
    """Return what the stream holds now.

    Raises `BrokerAway` at once when there is no broker, `ConfigurationError` when there is no such stream,
    `StreamUnreadable`, `ConnectionLost`.
    """
    await connection.once()
    try:
        state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    except Rejected as error:
        if error.error == _NO_STREAM:
            raise ConfigurationError(
                f"there is no stream {stream} at {connection.servers}; check the option stream, "
                "or run `logbroker apply`"
            ) from None
        raise StreamUnreadable(f"stream {stream} at {connection.servers}: {error}") from None
    until = state["last_seq"] + 1
    first = state["first_seq"] if state["messages"] else until
    return StreamState(first, until, state["messages"], state["bytes"])


async def partitions_of(connection: Connection, options: SourceOptions) -> tuple[int, ...]:
    """Return the partitions to read: those asked for, else all that the broker's configuration names."""
    if options.partitions is not None:
        return options.partitions
    await connection.once()
    try:
        entry = await read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    except Rejected:
        entry = None
    if entry is None or not entry.value.isdigit():
        raise ConfigurationError(
            f"the broker at {connection.servers} does not say how many partitions there are; "
            "run `logbroker apply`, or give the option partitions, such as 0,1"
        )
    return tuple(range(int(entry.value)))


async def place(
    connection: Connection, options: SourceOptions, position: Position, state: StreamState
) -> dict[int, int]:
    """Return for each partition the sequence that `position` means: the first to read, or the first not to read."""
    partitions = await partitions_of(connection, options)
    if isinstance(position, dict):
        return {partition: position[partition] for partition in partitions}
    if position is Edge.EARLIEST:
        sequence = state.first
    elif position is Edge.LATEST:
        sequence = state.until
    else:
        sequence = await _at(connection, options.stream, position, state)
    return dict.fromkeys(partitions, sequence)


async def _at(connection: Connection, stream: str, time: datetime, state: StreamState) -> int:
    request = {"start_time": time.astimezone(UTC).isoformat(), "batch": 1}
    try:
        found = await request_batch(connection, stream, request)
    except ConnectionLost:
        raise StreamUnreadable(f"stream {stream}: no answer to where {time} lies in it") from None
    return min(found[0].sequence, state.until) if found else state.until
