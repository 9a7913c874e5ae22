"""A message as a stream holds it, with its sequence, and the answers to direct gets."""

import re
from typing import NamedTuple

from nats_logship.app.timestamps import parse_time
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.message import Origin, Section, decode_payload, split_sections

_OF_THE_SERVER = {
    *("Nats-Sequence", "Nats-Time-Stamp", "Nats-Subject", "Nats-Stream"),
    *("Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"),
}
# the server writes these behind all headers of the client
_SEQUENCE = b"\r\nNats-Sequence: "
_HEAD_BEGINS = b"\r\nNats-Subject: "
_HEAD = re.compile(
    rb"\r\nNats-Subject: ([^\r\n]*)\r\nNats-Sequence: ([0-9]{1,20})\r\n"
    rb"Nats-Time-Stamp: ([0-9TZ:.+-]*)\r\n"
)


class AnswerHead(NamedTuple):
    """What the server writes of a message into an answer to `DIRECT.GET`; the time as text."""

    subject: str
    sequence: int
    time: str

    @staticmethod
    def is_in(head: bytes) -> bool:
        """Whether `read` returns something; a status has a subject at most."""
        return _SEQUENCE in head

    @classmethod
    def read(cls, head: bytes) -> "AnswerHead | None":
        """Read the headers of an answer; None for the status that ends it."""
        found = _HEAD.match(head, max(0, head.rfind(_HEAD_BEGINS)))
        if found is None:
            return None
        subject, sequence, time = found.groups()
        return cls(subject.decode("utf-8", "surrogateescape"), int(sequence), time.decode())


class StreamMessage(NamedTuple):
    """A message of a stream; `stored_at` is in nanoseconds since the epoch.

    If only headers were requested, the payload is empty, and `left_out` are its bytes.
    """

    subject: str
    sequence: int
    stored_at: int
    headers: dict[str, str]
    payload: bytes
    left_out: int = 0

    @classmethod
    def from_direct_get(cls, answer: RawMessage) -> "StreamMessage | None":
        """Read a message of an answer to `DIRECT.GET`; None for the status that ends the answer."""
        if (head := AnswerHead.read(answer.head)) is None:
            return None
        return cls(
            subject=head.subject,
            sequence=head.sequence,
            stored_at=parse_time(head.time),
            headers=_own_headers(answer.head),
            payload=answer.data,
        )


def _own_headers(head: bytes) -> dict[str, str]:
    """Return the client's headers; those of the server are behind them."""
    own = RawMessage("", "", head[: head.rfind(_HEAD_BEGINS)], b"").headers or {}
    return {name: value for name, value in own.items() if name not in _OF_THE_SERVER}


def split_message(
    message: StreamMessage, origin: Origin | None
) -> list[tuple[Section | None, bytes]]:
    """Return each section with its lines; those of another client have none.

    A newline is added if the last line of another client has none. Raises `MalformedMessage`.
    """
    lines = decode_payload(message.headers, message.payload)
    if origin is not None:
        return [*split_sections(origin, lines)]
    return [(None, lines if not lines or lines.endswith(b"\n") else lines + b"\n")]
