"""Reads the bucket LOGS_CONFIG: the numbers of partitions and streams, the interval of rounds.

More partitions exist than that number if it was once larger: receivers still read the others.
"""

import asyncio
from dataclasses import dataclass

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import SECOND, parse_time
from nats_logship.client import bucket
from nats_logship.client.connection import Connection
from nats_logship.wire.interval import INTERVAL_EXPIRES, INTERVAL_KEY, parse_interval
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
    """The number of partitions, and the time (RFC 3339) and revision at which it was written."""

    count: int
    time: str
    revision: int


@dataclass(frozen=True, slots=True)
class Interval:
    """The entry of the interval of rounds.

    `written` is when it was written, in nanoseconds since the epoch by the broker's clock.
    """

    value: bytes = b""
    written: int = 0
    revision: int = 0

    @property
    def seconds(self) -> float | None:
        """The interval, 0 for none; None if the entry cannot be read."""
        return parse_interval(self.value)

    def age(self, now: int) -> float:
        """Return the seconds since it was written; `now` is as `written`."""
        return (now - self.written) / SECOND

    def in_force(self, now: int) -> float:
        """Return the seconds in force; 0 for none, also after it has expired."""
        return (self.seconds or 0.0) if self.age(now) < INTERVAL_EXPIRES else 0.0


async def read_layout(connection: Connection) -> StreamLayout | None:
    """Return the numbers of partitions and streams, None without a number of partitions.

    Raises `ConfigurationError` for a bad number, `Rejected` without the bucket, `ConnectionLost`.
    """
    partitions, streams = await asyncio.gather(
        read_partitions(connection), read_streams(connection)
    )
    return None if partitions is None else StreamLayout(partitions.count, streams)


async def require_layout(connection: Connection) -> StreamLayout:
    """Return what `read_layout` does; raises `ConfigurationError` instead of returning None."""
    layout = await read_layout(connection)
    if layout is None:
        raise ConfigurationError("the broker has no number of partitions; run `logbroker apply`")
    return layout


async def read_partitions(connection: Connection) -> Partitions | None:
    """Return the number of partitions, None if there is none; raises as `read_layout` does."""
    entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    if entry is None:
        return None
    return Partitions(_parse(entry, MAX_PARTITIONS), entry.time, entry.revision)


async def read_streams(connection: Connection) -> int:
    """Return the number of streams, by default 1; raises as `read_layout` does."""
    return await find_streams(connection) or 1


async def find_streams(connection: Connection) -> int | None:
    """Return the number of streams, None if none is stored; raises as `read_layout` does."""
    entry = await bucket.read(connection, CONFIG_BUCKET, STREAMS_KEY)
    return _parse(entry, MAX_STREAMS) if entry else None


async def read_interval(connection: Connection) -> Interval:
    """Return the interval of rounds; raises `Rejected` without the bucket, `ConnectionLost`."""
    entry = await bucket.read(connection, CONFIG_BUCKET, INTERVAL_KEY)
    if entry is None:
        return Interval()
    return Interval(entry.value, parse_time(entry.time), entry.revision)


def _parse(entry: bucket.Entry, most: int) -> int:
    if (number := parse_number(entry.value, most)) is None:
        raise ConfigurationError(
            f"bucket {CONFIG_BUCKET} holds {entry.value[:40]!r}, which is not a number from 1 to "
            f"{most}; run `logbroker apply`"
        )
    return number
