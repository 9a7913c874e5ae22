"""Streams by sequence: what each holds, where a time lies in it, and a range of it, read as often as wanted.

Messages come by direct batched gets (ADR-31): no consumer is used, none is touched. Each request says where it begins, so
that a lost connection costs one of them and nothing else.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.timestamps import EPOCH, format_datetime, parse_time
from nats_logship.client import background
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection, retry_until_answered
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.stream_state import StreamState, stream_state
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.streams import STREAM

Position = datetime | int
"""Where to begin or to end in a stream: a time of storage, or a sequence."""
EARLIEST, LATEST = 0, 2**63 - 1

_RUN_BYTES = 8 * 1024 * 1024
_RUN_MESSAGES = 2000
_LAG = 0.1  # seconds until a replica that is behind its leader is asked again
_ANSWER = 30.0  # seconds
_HOW_TO_ALLOW = "stream {0} takes no direct gets; allow them: nats stream edit {0} --allow-direct"
AWAY = 30.0  # seconds that a broker may be away in the middle of a query
_OURS = ("Nats-Sequence", "Nats-Time-Stamp", "Nats-Subject")
_ADDED = {*_OURS, "Nats-Stream", "Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"}


class LostSequences(OperatorError):
    """Sequences that the query still had to read are not in the stream any more."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sequences `[first, until)` of a stream, of which those that a subject filter takes in are to be read."""

    subject: str
    first: int
    until: int
    stream: str = STREAM


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message of the stream; `time` is when it was stored, UTC, as the broker writes it."""

    sequence: int
    time: str
    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def stored_at(self) -> int:
        """`time` in nanoseconds since the epoch."""
        return parse_time(self.time)


async def look(connection: Connection, stream: str) -> StreamState:
    """Return what a stream holds now, by a leader: by another's answer it may seem to have been rewound.

    Raises `BrokerAway` at once without a broker, `ConfigurationError` without the stream, `OperatorError`, `ConnectionLost`.
    """
    await connection.connect()
    try:
        return await stream_state(connection, stream)
    except Rejected as error:
        if error.is_absent:
            raise ConfigurationError(
                f"there is no stream {stream} at {connection.servers}; check the option stream, "
                "or run `logbroker apply`"
            ) from None
        raise OperatorError(f"stream {stream} at {connection.servers}: {error}") from None


async def sequence_of(connection: Connection, position: Position, state: StreamState) -> int:
    """Return the sequence that a position means: of a time that of the first message stored then or later, or the end."""
    if isinstance(position, int):
        return {EARLIEST: state.first, LATEST: state.until}.get(position, position)
    if not state.messages or position > state.last:
        return state.until
    request = {"start_time": format_datetime(max(position, EPOCH)), "next_by_subj": ">"}
    found = await message_at(connection, state.name, request)
    return min(found["seq"], state.until) if found else state.until


async def message_at(
    connection: Connection, stream: str, request: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the message that is asked for, None for none, as the leader has it; raises `OperatorError`, `ConnectionLost`."""
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", request)
    except Rejected as error:
        if error.error == ErrorCode.NO_MESSAGE_FOUND:
            return None
        raise OperatorError(f"stream {stream} at {connection.servers}: {error}") from None
    return dict(answer["message"])


def kept(first: int, until: int, state: StreamState, *, fail: bool) -> int:
    """Return where to begin with `[first, until)`: where the stream does, if that is later; with `fail` raise `LostSequences`."""
    if fail and first < min(state.first, until):
        raise LostSequences(
            f"sequences {first} to {min(state.first, until) - 1} were removed from the stream before they "
            "were read; set failOnDataLoss to false to go on behind them"
        )
    return max(first, state.first)


def read(
    connection: Connection, item: Range, *, fail: bool = False
) -> Iterator[list[SourceMessage]]:
    """Yield the messages of a range in order, in runs of about 8 MiB; the next run is fetched meanwhile.

    Raises `BrokerAway` when the broker stays away for longer than half a minute, `Rejected`, and with `fail` `LostSequences`
    when retention removes what is still to be read.
    """
    if item.first >= item.until:
        return
    pending = background.submit(_fetch(connection, item, fail))
    try:
        while run := pending.result():
            rest = replace(item, first=run[-1].sequence + 1)
            if rest.first >= item.until:
                yield [message for message in run if message.sequence < item.until]
                return
            pending = background.submit(_fetch(connection, rest, fail))
            yield run
    finally:
        pending.cancel()


async def _fetch(connection: Connection, item: Range, fail: bool) -> list[SourceMessage]:
    """Return the next messages of a range, with some behind it; none where it has no more."""
    begin = {"seq": item.first, "next_by_subj": item.subject}
    most = min(_RUN_MESSAGES, item.until - item.first)
    limits = {"batch": most, "max_bytes": _RUN_BYTES}
    while True:
        run = await retry_until_answered(
            connection, lambda c: _request_batch(c, item.stream, begin | limits), AWAY
        )
        if fail:
            state = await retry_until_answered(connection, lambda c: look(c, item.stream), AWAY)
            kept(item.first, item.until, state, fail=True)
        if run:
            return run
        found = await retry_until_answered(
            connection, lambda c: message_at(c, item.stream, begin), AWAY
        )
        if found is None or found["seq"] >= item.until:
            return []
        await asyncio.sleep(_LAG)


async def _request_batch(
    connection: Connection, stream: str, request: dict[str, Any]
) -> list[SourceMessage]:
    """Return what one request brings, empty when there is nothing.

    Raises `BrokerAway`, `ConnectionLost`, `Denied`, and `Rejected` when the stream allows no direct gets.
    """
    found: list[SourceMessage] = []
    ends: asyncio.Queue[str] = asyncio.Queue()

    def take(message: RawMessage) -> None:
        headers = message.headers or {}
        if "Nats-Sequence" in headers:
            sequence, time, subject = (headers[name] for name in _OURS)
            rest = {name: value for name, value in headers.items() if name not in _ADDED}
            found.append(SourceMessage(int(sequence), time, subject, rest, message.data))
        else:
            ends.put_nowait(headers.get("Status", ""))

    await connection.connect()
    subject = connection.api_subject(f"DIRECT.GET.{stream}")
    async with connection.open_inbox(take) as inbox:
        await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
        code = await connection.guard(ends.get(), _ANSWER, subject)
    if code not in {"204", "404"}:
        raise Rejected(int(code or 0), 0, _HOW_TO_ALLOW.format(stream))
    return found
