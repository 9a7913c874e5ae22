"""What a delivered message says of itself in its reply subject: its place in the stream and in the consumer."""

from typing import NamedTuple

__all__ = ["Delivery", "parse"]


class Delivery(NamedTuple):
    """A delivery's sequence in the stream, its number in the consumer (from 1), when it was stored and what is left.

    `stored_at` is in nanoseconds since the epoch; `attempt` counts deliveries of this message from 1; `pending` is how
    many messages the consumer has still to deliver.
    """

    attempt: int
    sequence: int
    number: int
    stored_at: int
    pending: int


def parse(reply: str) -> Delivery | None:
    """Read a reply subject; None when it is none of a delivery (status messages have no reply).

    `$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<number>.<time>.<pending>`; since ADR-15's second form with a
    domain and an account in front of the stream, and a random token behind.
    """
    if not reply.startswith("$JS.ACK."):
        return None
    tokens = reply.split(".")
    numbers = tokens[4:9] if len(tokens) == 9 else tokens[6:11]
    digits = "".join(numbers)
    if len(numbers) != 5 or not all(numbers) or not (digits.isascii() and digits.isdigit()):
        return None
    return Delivery._make(map(int, numbers))
