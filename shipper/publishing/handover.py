"""Hands the messages of a round to the connection, in order, no faster than the line takes them."""

from collections.abc import Callable, Iterable

from broker.connecting.connection import Connection
from broker.faults import fault
from shipper.publishing.rounds import Outgoing

__all__ = ["hand_over", "patience_for"]

_LEAST_PATIENCE = 30.0  # seconds
_SLOWEST = 20_000  # bytes a second, of a line that still takes a round


def patience_for(size: int) -> float:
    """Return the seconds in which so many bytes get through, however slow the line is; a dead one is noticed by pings."""
    return _LEAST_PATIENCE + size / _SLOWEST


async def hand_over(
    connection: Connection,
    subject: str,
    messages: Iterable[Outgoing],
    reply: str,
    patience: float,
    is_answered: Callable[[], bool] = lambda: False,
) -> None:
    """Return once all but what the sockets hold is on its way; those that are to be answered name `reply`.

    Nothing more is sent as soon as it `is_answered`: that is a refusal then, or nobody is there. Raises `ConnectionLost` when the line took less within `patience` seconds, `Denied`.
    """

    async def send() -> None:
        # waits for ever when nobody reads at the line's other end, so it is guarded
        for message in messages:
            if is_answered():
                return
            await connection.publish(
                subject, message.payload, reply if message.answered else "", message.headers
            )
            fault("sent_in_part")

    await connection.guard(send(), patience, subject)
