"""Ask the owner of a partition or of a table, at the address that its entry in KV names."""

from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.client.connection import Connection

_PATIENCE = 1.0  # seconds for an answer


async def ask_owner(connection: Connection, presence: str) -> tuple[bool | None, bytes]:
    """Return whether the owner is running, None if this user may not ask it; and its answer."""
    try:
        answer = await connection.request(f"logship.receiver.{presence}", patience=_PATIENCE)
    except Denied:
        return None, b""
    except (ConnectionLost, Rejected):
        return False, b""
    return True, bytes(answer.data)
