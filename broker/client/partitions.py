"""How many partitions there are: how many hosts are spread over now, and how many exist.

More exist than hosts are spread over where there were more before: what they hold is still received.
"""

from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, STREAM, existing_in, partitions_in

__all__ = ["current_partitions", "existing_partitions"]


async def current_partitions(connection: Connection) -> int:
    """Return how many partitions hosts are spread over, 0 where nobody says; raises `Rejected` or `ConnectionLost`."""
    try:
        entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    except Rejected as error:
        if error.is_nobody and await _has_bucket(connection):
            raise  # its leader is being elected
        return 0  # a stream without its buckets: of somebody else, or half made
    return partitions_in(entry.value if entry else None) or 0


async def existing_partitions(connection: Connection) -> int:
    """Return the number below which all partitions are that hosts are spread over, or that have a consumer.

    Raises `Rejected` or `ConnectionLost`.
    """
    return max(await current_partitions(connection), existing_in(await _consumers(connection)))


async def _consumers(connection: Connection) -> list[str]:
    """Return the names of the stream's consumers; the server need not ask each of them, as it does for their state."""
    found: list[str] = []
    while True:
        page = await connection.api(f"CONSUMER.NAMES.{STREAM}", {"offset": len(found)})
        names = page.get("consumers") or []
        found += names
        if not names or len(found) >= page.get("total", 0):
            return found


async def _has_bucket(connection: Connection) -> bool:
    try:
        await connection.api(f"STREAM.INFO.KV_{CONFIG_BUCKET}")
    except Rejected as error:
        if error.is_leaderless:
            raise
        return False
    return True
