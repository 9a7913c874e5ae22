"""Watches the number of partitions under a running receiver: a partition that nobody was started for is told by name."""

import asyncio
import logging

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, partitions_in

__all__ = ["watch"]

_LOOK = 60.0  # seconds

logger = logging.getLogger(__name__)


async def watch(connection: Connection, known: int) -> None:
    """Say whenever the number is no longer `known`; never returns."""
    while True:
        await asyncio.sleep(_LOOK)
        try:
            await connection.client()
            entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
        except (ConnectionLost, Rejected):
            continue
        number = partitions_in(entry.value if entry else None)
        if number is None or number == known:
            continue
        logger.warning(
            "the broker has %d partitions by now, it had %d: start receivers for all of them, this one again if it "
            "receives `all`; it goes on with those that it was started for",
            number,
            known,
        )
        known = number
