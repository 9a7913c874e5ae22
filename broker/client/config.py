"""What the bucket LOGS_CONFIG says: how hosts are spread over partitions, partitions over streams, and which hosts are paused.

More partitions exist than hosts are spread over where there were more before: what they hold is still received.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from broker.app.exits import ConfigurationError
from broker.client import bucket
from broker.client.answer import Rejected
from broker.client.connection import Connection
from broker.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    STREAMS_KEY,
    StreamLayout,
    existing_in,
    partitions_in,
    stream_names,
    streams_in,
)

if TYPE_CHECKING:
    from broker.wire.pause import Pause

logger = logging.getLogger(__name__)


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
    return Partitions(_number(partitions_in, entry), entry.time, entry.revision)


async def read_streams(connection: Connection) -> int:
    """Return how many streams the broker names, 1 where it names no number; raises what `read_layout` raises."""
    entry = await bucket.read(connection, CONFIG_BUCKET, STREAMS_KEY)
    return _number(streams_in, entry) if entry else 1


def _number(read: Callable[[bytes], int | None], entry: bucket.Entry) -> int:
    if (number := read(entry.value)) is None:
        raise ConfigurationError(
            f"a key of bucket {CONFIG_BUCKET} is {entry.value[:40]!r}, no number; run `logbroker apply`"
        )
    return number


async def current_partitions(connection: Connection) -> int:
    """Return how many partitions hosts are spread over, 0 where nobody says; raises `Rejected` or `ConnectionLost`."""
    try:
        entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    except Rejected as refused:
        if not refused.is_nobody:
            return 0
        try:
            await connection.api(f"STREAM.INFO.KV_{CONFIG_BUCKET}")
        except Rejected as error:
            if error.is_leaderless:
                raise
            return 0  # a stream without its buckets: of somebody else, or half made
        raise  # its leader is being elected
    return partitions_in(entry.value if entry else None) or 0


async def existing_partitions(connection: Connection) -> int:
    """Return the number below which all partitions are that hosts are spread over, or that have a consumer.

    Raises what `read_layout` raises.
    """
    current = await current_partitions(connection)
    streams = await read_streams(connection) if current else 1
    # names alone: the server need not ask each consumer, as it does for their state
    calls = (
        connection.pages(f"CONSUMER.NAMES.{one}", "consumers") for one in stream_names(streams)
    )
    return max(current, *map(existing_in, await asyncio.gather(*calls)))


async def current_pauses(connection: Connection) -> "tuple[Pause, ...]":
    """Return the pauses that are not over; none where the bucket is not there, or where they cannot be read, which is logged.

    Raises `ConnectionLost`.
    """
    # pydantic, which the data source of a plain Spark does without
    from broker.wire.pause import PAUSE_KEY, UnreadablePauses, decode_pauses

    try:
        entry = await bucket.read(connection, CONFIG_BUCKET, PAUSE_KEY)
        pauses = decode_pauses(entry.value) if entry else ()
    except Rejected as error:
        logger.debug("no pauses: %s", error)
        return ()
    except UnreadablePauses as error:
        logger.warning("the pauses cannot be read, so nothing is paused: %s", error)
        return ()
    now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
    return tuple(one for one in pauses if not one.is_over(now))


async def change_pauses(
    connection: Connection, change: "Callable[[bytes], tuple[Pause, ...]]"
) -> "tuple[Pause, ...]":
    """Write what `change` makes of the entry's value, and return it.

    If we die here, the entry is written or not, and the same command again does the same. Raises what `change` raises,
    `Conflict`, `Rejected` or `ConnectionLost`.
    """
    from broker.wire.pause import PAUSE_KEY, encode_pauses

    entry = await bucket.read(connection, CONFIG_BUCKET, PAUSE_KEY)
    pauses = change(entry.value if entry else b"")
    revision = entry.revision if entry else 0
    await bucket.write(connection, CONFIG_BUCKET, PAUSE_KEY, encode_pauses(pauses), revision)
    return pauses
