"""What the bucket LOGS_CONFIG says: how hosts are spread over partitions, and partitions over streams.

More partitions exist than hosts are spread over where there were more before: what they hold is still received.
"""

import asyncio
from dataclasses import dataclass

from nats_logship.app.exits import ConfigurationError
from nats_logship.client import bucket
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    MAX_PARTITIONS,
    MAX_STREAMS,
    PARTITIONS_KEY,
    STREAMS_KEY,
    StreamLayout,
    parse_number,
)


@dataclass(frozen=True, slots=True)
class Partitions:
    """How many partitions hosts are spread over, and when the broker was told so."""

    count: int
    time: str
    revision: int


async def read_layout(connection: Connection) -> StreamLayout | None:
    """Return how many partitions and streams the broker names; None where it names no number of partitions (yet).

    Raises `ConfigurationError` for an entry that is no such number, `Rejected` where there is no bucket, `ConnectionLost`.
    """
    partitions, streams = await asyncio.gather(
        read_partitions(connection), read_streams(connection)
    )
    return None if partitions is None else StreamLayout(partitions.count, streams)


async def require_layout(connection: Connection) -> StreamLayout:
    """Return what `read_layout` does; raises `ConfigurationError` also where the broker names no number of partitions."""
    layout = await read_layout(connection)
    if layout is None:
        raise ConfigurationError(
            "the broker does not say how many partitions there are; run `logbroker apply`"
        )
    return layout


async def read_partitions(connection: Connection) -> Partitions | None:
    """Return how many partitions the broker names, None where it names no number (yet); raises what `read_layout` raises."""
    entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    if entry is None:
        return None
    return Partitions(_number(entry, MAX_PARTITIONS), entry.time, entry.revision)


async def read_streams(connection: Connection) -> int:
    """Return how many streams the broker names, 1 where it names no number; raises what `read_layout` raises."""
    entry = await bucket.read(connection, CONFIG_BUCKET, STREAMS_KEY)
    return _number(entry, MAX_STREAMS) if entry else 1


def _number(entry: bucket.Entry, most: int) -> int:
    if (number := parse_number(entry.value, most)) is None:
        raise ConfigurationError(
            f"a key of bucket {CONFIG_BUCKET} is {entry.value[:40]!r}, no number; run `logbroker apply`"
        )
    return number
