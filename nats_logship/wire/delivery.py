"""A message as nats-server delivers it: headers, payload, and the reply subject with its sequence.

Reads anything that a client can write, and never raises.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_END = "\r\n"
_BLANKS = " \t\n\r\v\f"
_REPLY = re.compile(  # the newer form has two tokens more, and may go on behind the numbers
    r"\$JS\.ACK\.([^.]*\.[^.]*\.)??[^.]*\.[^.]*" + 5 * r"\.([0-9]{1,20})" + r"(?(1)(?:\..*)?)",
    re.DOTALL,
)
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
    found = _REPLY.fullmatch(reply)
    return Delivery._make(map(int, found.group(2, 3, 4, 5, 6))) if found else None


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
        first, *lines = self.head.decode("utf-8", "replace").split(_END)
        status, _, text = first.partition(" ")[2].partition(" ")
        found = {"Status": status, "Description": text} if status else {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon and (key := _clean_name(name)) is not None:
                found[key] = value.strip(_BLANKS)
        return found or None

    @property
    def size(self) -> int:
        """The payload's bytes in a message without payload (`headers_only`), else 0.

        The server writes this header last, after all headers of the client.
        """
        found = _SIZE.search(self.head)
        return int(found[1]) if found else 0


@lru_cache(1000)
def _clean_name(text: str) -> str | None:
    name = text.strip(_BLANKS)
    return name if name.isascii() and len(name.split()) == 1 else None
