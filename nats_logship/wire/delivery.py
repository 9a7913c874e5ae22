"""A message as nats-server delivers it: headers, payload, and the reply subject with its sequence.

Reads anything that a client can write, and never raises.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_END = b"\r\n"
_SIZE = re.compile(rb"Nats-Msg-Size: ([0-9]{1,10})\r\n\r\n\Z")


class Delivery(NamedTuple):
    """The numbers in the reply subject of a delivered message.

    `attempt` counts the deliveries of this message, and `number` those of the consumer, from 1.
    `stored_at` is in nanoseconds since the epoch; `pending` messages are still to be delivered.
    """

    attempt: int
    sequence: int
    number: int
    stored_at: int
    pending: int


def parse_reply(reply: str) -> Delivery | None:
    """Read a reply subject; return None for any other subject, such as that of a status message.

    `$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<number>.<time>.<pending>`; the newer form
    (ADR-15) has a domain and an account before the stream, and a random token at the end.
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
    """A message as received: `head` is the header bytes with the status line, or empty."""

    subject: str
    reply: str
    head: bytes
    data: bytes

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers by name, a status as `Status` and `Description`; None if there are none."""
        if not self.head:
            return None
        first, *lines = self.head.split(_END)
        status, _, text = first.partition(b" ")[2].decode("utf-8", "replace").partition(" ")
        found = {"Status": status, "Description": text} if status else {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if colon and (key := _decode_name(name)) is not None:
                found[key] = value.strip().decode("utf-8", "replace")
        return found or None

    @property
    def size(self) -> int:
        """The payload's bytes in a message without payload (`headers_only`), else 0.

        The server writes this header last, after all headers of the client.
        """
        found = _SIZE.search(self.head)
        return int(found[1]) if found else 0


@lru_cache(1000)
def _decode_name(raw: bytes) -> str | None:
    name = raw.strip()
    return name.decode() if name.isascii() and len(name.split()) == 1 else None
