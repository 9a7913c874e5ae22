"""Takes a host's positions away from the broker, as somebody does who deletes what was not theirs."""

from broker.client.bucket import read
from broker.client.connection import Connection
from broker.wire.streams import POSITIONS_BUCKET, positions_key

__all__ = ["delete_positions", "has_positions"]


async def has_positions(connection: Connection, host: str) -> bool:
    """Return whether the broker has a snapshot of a host."""
    return await read(connection, POSITIONS_BUCKET, positions_key(host)) is not None


async def delete_positions(connection: Connection, host: str) -> None:
    """Delete the snapshot of a host."""
    key = positions_key(host)
    await connection.ask(f"$KV.{POSITIONS_BUCKET}.{key}", b"", {"KV-Operation": "DEL"})
