"""Sends a message, no faster than the line takes it."""

from collections.abc import Mapping

from broker.client.connection import Connection

__all__ = ["patience_for", "send"]

_LEAST_PATIENCE = 30.0  # seconds
_SLOWEST = 20_000  # bytes a second, of a line that still takes a round


def patience_for(size: int) -> float:
    """Return the seconds in which so many bytes get through, however slow the line is; a dead one is noticed by pings."""
    return _LEAST_PATIENCE + size / _SLOWEST


async def send(
    connection: Connection, subject: str, payload: bytes, reply: str, headers: Mapping[str, str]
) -> None:
    """Return once all but what the sockets hold is on its way.

    Raises `ConnectionLost` when the line did not take it in `patience_for` its size, `Denied`.
    """
    # waits for ever when nobody reads at the line's other end, so it is guarded
    sending = connection.publish(subject, payload, reply, dict(headers))
    await connection.guard(sending, patience_for(len(payload)), subject)
