"""Which partitions there are to receive: by their number in KV, and by what the streams still hold of those that hosts have left."""

import asyncio
import logging

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import read_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout, count_partitions
from receiver.driver.presence import run_unless_stopped

_AGAIN = 1.0  # seconds
_NOT_SET_UP = "the broker has no number of partitions; run `logbroker apply`"

logger = logging.getLogger(__name__)


async def wait_for_partitions(
    connection: Connection, stop: asyncio.Event, patience: float | None
) -> tuple[StreamLayout, int] | None:
    """Return what `find_partitions` does as soon as the broker is set up, None when told to stop first.

    With a `patience`, in seconds, the broker must be there and set up within it: raises `BrokerAway`, `ConfigurationError`.
    """
    clock = asyncio.get_running_loop().time
    told, began = "", clock()
    if patience is not None:
        await run_unless_stopped(stop, connection.connect(patience))
    while not stop.is_set():
        reason = _NOT_SET_UP
        try:
            if found := await run_unless_stopped(stop, find_partitions(connection)):
                return found
        except ConnectionLost:
            continue
        except (Rejected, ConfigurationError) as error:  # it is set up, or mended, later
            reason = reason if isinstance(error, Rejected) else str(error)
        if patience is not None and clock() - began >= patience:
            raise ConfigurationError(f"{reason} first")
        if reason != told and not stop.is_set():
            logger.warning("%s; waiting", reason)
        told = reason
        await run_unless_stopped(stop, asyncio.sleep(_AGAIN))
    return None


async def find_partitions(connection: Connection) -> tuple[StreamLayout, int] | None:
    """Ask the broker once how it spreads hosts, and below which number all partitions are, also those that hosts have left.

    None where nothing is set up. Raises `ConfigurationError` for an entry that is no number, `Rejected`, `ConnectionLost`.
    """
    layout = await read_layout(connection)
    return (layout, await request_partition_count(connection, layout)) if layout else None


async def request_partition_count(connection: Connection, layout: StreamLayout) -> int:
    """Return the number below which all partitions are, with those that hosts have left where the rights suffice to ask."""
    try:
        configs = [(await connection.api(f"STREAM.INFO.{name}"))["config"] for name in layout.names]
    except Rejected:
        return layout.partitions  # who follows one says what is wrong with the stream
    subjects = [subject for config in configs for subject in config.get("subjects") or ()]
    return max(layout.partitions, count_partitions(subjects))
