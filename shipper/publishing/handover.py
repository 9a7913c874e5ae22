"""Hands the messages of a round to the connection, in order, no faster than the line takes them."""

from collections.abc import Iterable

from broker.connecting.connection import Connection
from shipper.publishing.rounds import Outgoing

__all__ = ["hand_over"]


async def hand_over(
    connection: Connection, subject: str, messages: Iterable[Outgoing], reply: str, patience: float
) -> None:
    """Return once all but what the sockets hold is on its way; those that are to be answered name `reply`.

    Raises `ConnectionLost` when the line took less within `patience` seconds, `Denied`.
    """

    async def send() -> None:
        # waits for ever when nobody reads at the line's other end, so it is guarded
        for message in messages:
            await connection.publish(
                subject, message.payload, reply if message.answered else "", message.headers
            )

    await connection.guard(send(), patience, subject)
