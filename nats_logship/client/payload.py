"""How large a message may be."""

from nats_logship.client.connection import Connection
from nats_logship.wire.streams import PAYLOAD_HEADROOM


async def get_max_payload(connection: Connection) -> int:
    """Return how many bytes of payload the broker accepts; waits for a live client."""
    most = (await connection.client()).max_payload
    return most - min(PAYLOAD_HEADROOM, most // 2)
