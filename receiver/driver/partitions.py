"""Which partitions there are: those of the broker's number, and those that hosts have left."""

import asyncio
import logging

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import read_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout, count_partitions
from receiver.driver.stopping import run_unless_stopped

_ASK_EVERY = 1.0  # seconds
_NOT_SET_UP = "the broker has no number of partitions; run `logbroker apply`"

logger = logging.getLogger(__name__)


async def wait_for_partitions(
    connection: Connection, stop: asyncio.Event, patience: float | None
) -> tuple[StreamLayout, int] | None:
    """Wait until the broker is set up, and return what `find_partitions` returns; None on a stop.

    With a `patience`, in seconds, the broker must be set up within it: raises `BrokerAway`,
    `ConfigurationError`.
    """
    clock = asyncio.get_running_loop().time
    logged, began = "", clock()
    if patience is not None:
        await run_unless_stopped(stop, connection.connect(patience))
    while not stop.is_set():
        reason = _NOT_SET_UP
        try:
            if found := await run_unless_stopped(stop, find_partitions(connection)):
                return found
        except ConnectionLost:
            continue
        except (Rejected, ConfigurationError) as error:  # a person sets it up, or repairs it, later
            reason = reason if isinstance(error, Rejected) else str(error)
        if patience is not None and clock() - began >= patience:
            raise ConfigurationError(f"{reason} first")
        if reason != logged and not stop.is_set():
            logger.warning("%s; waiting", reason)
        logged = reason
        await run_unless_stopped(stop, asyncio.sleep(_ASK_EVERY))
    return None


async def find_partitions(connection: Connection) -> tuple[StreamLayout, int] | None:
    """Return how the broker spreads hosts, and how many partitions there are; None if not set up.

    Raises `ConfigurationError` for an entry that is no number, `Rejected`, `ConnectionLost`.
    """
    layout = await read_layout(connection)
    return (layout, await request_partition_count(connection, layout)) if layout else None


async def request_partition_count(connection: Connection, layout: StreamLayout) -> int:
    """Return the number of partitions, with those that hosts have left.

    Without the right to read the streams' configuration it is the layout's number.
    """
    try:
        configs = [(await connection.api(f"STREAM.INFO.{name}"))["config"] for name in layout.names]
    except Rejected:
        return layout.partitions  # the supervisor of a partition logs what is wrong with its stream
    subjects = [subject for config in configs for subject in config.get("subjects") or ()]
    return max(layout.partitions, count_partitions(subjects))
