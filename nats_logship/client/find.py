"""Finds single messages of a stream: by sequence, by subject, or by the time of storage."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

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
from nats_logship.wire.stream_message import StreamMessage

_NO_MESSAGE = "404"


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
