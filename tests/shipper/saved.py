"""The snapshot of a host's positions in the broker: read, changed and deleted by tests."""

from nats_logship.client.bucket import read, write
from nats_logship.client.connection import Connection
from nats_logship.wire.positions import Positions
from nats_logship.wire.streams import POSITIONS_BUCKET, positions_key


async def saved(connection: Connection, host: str = "web01") -> bytes | None:
    """Return the snapshot as it is; None where there is none."""
    entry = await read(connection, POSITIONS_BUCKET, positions_key(host))
    return entry.value if entry else None


async def saved_positions(connection: Connection, host: str = "web01") -> Positions:
    """Return the positions of the snapshot, which is there."""
    return Positions.decode(await saved(connection, host) or b"")


async def put(connection: Connection, value: bytes | None, host: str = "web01") -> None:
    """Replace the snapshot of a host by these bytes, or delete it."""
    key = positions_key(host)
    entry = await read(connection, POSITIONS_BUCKET, key)
    if value is not None:
        await write(connection, POSITIONS_BUCKET, key, value, entry.revision if entry else 0)
    elif entry:
        deletion = {"KV-Operation": "DEL"}
        await connection.ask(f"$KV.{POSITIONS_BUCKET}.{key}", b"", deletion)
