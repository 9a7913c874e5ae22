"""Finds single messages of a stream: by sequence, by subject, or by the time of storage."""

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from nats_logship.app.timestamps import (
    EARLIEST,
    EPOCH,
    LATEST,
    Moment,
    format_datetime,
    parse_time,
)
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.stream_state import StreamState
from nats_logship.wire.delivery import RawMessage

_NO_MESSAGE = "404"
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


async def find_last(connection: Connection, stream: str, subject: str) -> StreamMessage | None:
    """Return the last message of a subject or filter, None when there is none.

    Any replica answers, also one that lags. This takes the least rights. Raises `Rejected`,
    `ConnectionLost`.
    """
    answer = await connection.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
    found = StreamMessage.from_direct_get(answer)
    if found is None and (headers := answer.headers or {}).get("Status") != _NO_MESSAGE:
        raise ConnectionLost(f"the answer is no message: {headers}")
    return found


async def find_message(
    connection: Connection, stream: str, request: Mapping[str, Any]
) -> StreamMessage | None:
    """Return the message that a request of `STREAM.MSG.GET` names, None when there is none.

    The stream's leader is asked, since a replica may lag.
    `request` has `seq`, `last_by_subj`, or `next_by_subj` with `seq` or `start_time`. Raises
    `Rejected`, `ConnectionLost`.
    """
    try:
        found = (await connection.api(f"STREAM.MSG.GET.{stream}", request))["message"]
    except Rejected as error:
        if error.error == ErrorCode.NO_MESSAGE_FOUND:
            return None
        raise
    head, payload = (base64.b64decode(found.get(part, "")) for part in ("hdrs", "data"))
    return StreamMessage(
        subject=found["subject"],
        sequence=found["seq"],
        stored_at=parse_time(found["time"]),
        headers=RawMessage("", "", head, b"").headers or {},
        payload=payload,
    )


async def find_sequence(connection: Connection, stream: str, time: datetime) -> int | None:
    """Return the sequence of the first message stored at `time` or later, None when there is none.

    Raises as `find_message`.
    """
    request = {"start_time": format_datetime(max(time, EPOCH)), "next_by_subj": ">"}
    found = await find_message(connection, stream, request)
    return found.sequence if found else None


async def resolve_moment(connection: Connection, moment: Moment, state: StreamState) -> int:
    """Return the sequence at which a stream is read from, or up to, a moment.

    A sequence is returned as it is, `EARLIEST` as the stream's first, `LATEST` as its end. A time
    is the first message stored then or later, else the end. Raises as `find_message`.
    """
    if isinstance(moment, int):
        return {EARLIEST: state.first, LATEST: state.until}.get(moment, moment)
    if not state.messages or moment > state.last:
        return state.until
    found = await find_sequence(connection, state.name, moment)
    return state.until if found is None else min(found, state.until)
