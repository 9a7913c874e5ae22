"""Which partitions there are to receive: asked at the start, waited for where nothing is set up yet, and asked again now and then.

Those beyond the number of partitions count while they hold messages that nobody has received: the number was larger once.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass

from broker.app.exits import ConfigurationError
from broker.client import bucket
from broker.client.config import read_layout
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    StreamLayout,
    existing_in,
    offset_key,
)
from broker.wire.subjects import partition_filter
from receiver.consume.wake import Wake
from receiver.driver.jobs import unless

__all__ = ["PartitionSet", "find_partitions", "wait_for_partitions"]

_AGAIN = 1.0  # seconds

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """How many partitions there are, in which streams, and which `beyond` that number still hold messages to receive."""

    layout: StreamLayout
    beyond: tuple[int, ...] = ()

    @property
    def all(self) -> tuple[int, ...]:
        """Every partition that there is something to receive of, or may be."""
        return (*range(self.count), *self.beyond)

    @property
    def count(self) -> int:
        """How many partitions hosts are spread over."""
        return self.layout.partitions


async def wait_for_partitions(
    connection: Connection,
    stop: asyncio.Event,
    patience: float | None,
    among: Collection[int] | None = None,
) -> PartitionSet | None:
    """Return what `find_partitions` does as soon as the broker is set up, None when told to stop first.

    With a `patience`, in seconds, the broker must be there and set up within it: raises `BrokerAway`,
    `ConfigurationError`. Raises `ConfigurationError` also for an entry that is no number.
    """
    loop = asyncio.get_running_loop()
    told, give_up = False, loop.time() + (patience or 0.0)
    if patience is not None:
        await unless(stop, connection.once(patience))
    while not stop.is_set():
        try:
            found = await unless(stop, find_partitions(connection, among))
        except ConnectionLost:
            continue
        except Rejected:
            found = None
        if found is not None or stop.is_set():
            return found
        if patience is not None and loop.time() >= give_up:
            raise ConfigurationError(
                f"bucket {CONFIG_BUCKET} is not there; run `logbroker apply` first"
            )
        if not told:
            logger.warning(
                "bucket %s is not there yet; waiting for `logbroker apply`", CONFIG_BUCKET
            )
        told = True
        await unless(stop, asyncio.sleep(_AGAIN))
    return None


async def find_partitions(
    connection: Connection, among: Collection[int] | None = None
) -> PartitionSet | None:
    """Ask the broker once; None where it has no number of partitions.

    Those beyond the number are asked about only where they are `among` those that the caller may receive. Raises `ConfigurationError` for an entry that is no number, `Rejected`, `ConnectionLost`.
    """
    layout = await read_layout(connection)
    if layout is None:
        return None
    return PartitionSet(layout, await _beyond(connection, layout, among))


async def _beyond(
    connection: Connection, layout: StreamLayout, among: Collection[int] | None
) -> tuple[int, ...]:
    """Return the partitions beyond the number that a stream takes in and that hold messages which nobody has received."""
    try:
        configs = [(await connection.api(f"STREAM.INFO.{name}"))["config"] for name in layout.names]
    except Rejected:
        return ()  # whoever follows a partition says what is wrong with the stream
    subjects = {subject for config in configs for subject in config.get("subjects") or ()}
    count, until = layout.partitions, existing_in(subjects)
    numbers = range(count, until) if among is None else [n for n in among if n >= count]
    there = [number for number in sorted(numbers) if partition_filter(number) in subjects]
    return tuple([n for n in there if await _is_waiting(connection, n, layout.stream_of(n))])


async def _is_waiting(connection: Connection, partition: int, stream: str) -> bool:
    """Whether the partition has messages from the committed offset on; also where that cannot be told: its claim says why."""
    try:
        entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
        offset = Offset.decode(entry.value) if entry else Offset(0, 0, "", "")
        consumer = Wake(connection, partition, stream, offset.epoch + 1)
        left = await consumer.pending(offset.next)
        await consumer.close()
    except (UnreadableOffset, Rejected):
        return True
    return left > 0
