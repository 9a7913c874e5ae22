"""How many partitions the broker is set up for: asked, and waited for where it is not."""

import asyncio
import logging

from broker.app.exits import ConfigurationError
from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, partitions_in
from receiver.driver.patience import pause, unless

__all__ = ["partitions_of"]

logger = logging.getLogger(__name__)


async def partitions_of(
    connection: Connection, stop: asyncio.Event, patience: float | None
) -> int | None:
    """Return how many partitions there are, None when told to stop first.

    With a `patience`, in seconds, the broker must be there and set up within it: raises `BrokerAway`,
    `ConfigurationError`. Raises `ConfigurationError` also for an entry that is no number.
    """
    told, give_up = False, asyncio.get_running_loop().time() + (patience or 0.0)
    if patience is not None:
        await unless(stop, connection.once(patience))
    while not stop.is_set():
        entry = await _entry(connection, stop)
        if stop.is_set():
            break
        if entry is not None:
            return _count(entry.value)
        if patience is not None and asyncio.get_running_loop().time() >= give_up:
            raise ConfigurationError(
                f"bucket {CONFIG_BUCKET} is not there; run `logbroker apply` first"
            )
        if not told:
            logger.warning(
                "bucket %s is not there yet; waiting for `logbroker apply`", CONFIG_BUCKET
            )
        told = True
        await pause(stop, 1)
    return None


async def _entry(connection: Connection, stop: asyncio.Event) -> bucket.Entry | None:
    """Read the number of partitions; None when it is not there, or when told to stop."""
    while not stop.is_set():
        try:
            return await unless(stop, bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY))
        except ConnectionLost:
            continue
        except Rejected:
            break
    return None


def _count(value: bytes) -> int:
    number = partitions_in(value)
    if number is None:
        raise ConfigurationError(
            f"key {PARTITIONS_KEY} of bucket {CONFIG_BUCKET} is {value[:40]!r}, no number; run `logbroker apply`"
        )
    return number
