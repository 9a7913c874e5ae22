"""The pauses that operators have made: read from a broker, and changed by compare-and-set."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.wire.pause import PAUSE_KEY, Pause, UnreadablePauses, decode_pauses, encode_pauses
from broker.wire.streams import CONFIG_BUCKET

__all__ = ["change_pauses", "current_pauses"]

logger = logging.getLogger(__name__)


async def current_pauses(connection: Connection) -> tuple[Pause, ...]:
    """Return the pauses that are not over; none where the bucket is not there, or where they cannot be read, which is logged.

    Raises `ConnectionLost`.
    """
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
    connection: Connection, change: Callable[[bytes], tuple[Pause, ...]]
) -> tuple[Pause, ...]:
    """Write what `change` makes of the entry's value, and return it.

    If we die here, the entry is written or not, and the same command again does the same. Raises what `change` raises,
    `Conflict`, `Rejected` or `ConnectionLost`.
    """
    entry = await bucket.read(connection, CONFIG_BUCKET, PAUSE_KEY)
    pauses = change(entry.value if entry else b"")
    revision = entry.revision if entry else 0
    await bucket.write(connection, CONFIG_BUCKET, PAUSE_KEY, encode_pauses(pauses), revision)
    return pauses
