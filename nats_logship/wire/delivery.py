"""A message as the broker delivers it: its headers, and what its reply subject says of its place in stream and consumer.

Reads whatever a client wrote; never raises.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_END = b"\r\n"
_SIZE = re.compile(rb"Nats-Msg-Size: ([0-9]{1,10})\r\n\r\n\Z")


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


def parse_reply(reply: str) -> Delivery | None:
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


class RawMessage(NamedTuple):
    """A message as it came: `head` is its headers on the wire, status line included, empty where it has none."""

    subject: str
    reply: str
    head: bytes
    data: bytes

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers by name, a server's status as `Status` and `Description`; None where there are none."""
        if not self.head:
            return None
        first, *lines = self.head.split(_END)
        status, _, description = first.partition(b" ")[2].decode("utf-8", "replace").partition(" ")
        found = {"Status": status, "Description": description} if status else {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if colon and (key := _header_name(name)) is not None:
                found[key] = value.strip().decode("utf-8", "replace")
        return found or None

    @property
    def size(self) -> int:
        """The bytes of a payload that the server left out (`headers_only`); 0 where it does not tell.

        The server writes it last, whatever a client's own headers are, and however they end.
        """
        found = _SIZE.search(self.head)
        return int(found[1]) if found else 0


@lru_cache(1000)
def _header_name(raw: bytes) -> str | None:
    name = raw.strip()
    return name.decode() if name.isascii() and len(name.split()) == 1 else None
