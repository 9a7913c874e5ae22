"""Reads a range of a stream by direct batched gets (ADR-31), without a consumer.

Each request names the sequence at which it begins, so a lost connection costs one request, and a
range can be read as often as wanted.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nats_logship.app.exits import OperatorError
from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Answer, Connection, retry_until_answered
from nats_logship.client.find import find_message
from nats_logship.client.stream_state import StreamState, get_stream_state, require_stream
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.stream_message import AnswerHead, StreamMessage
from nats_logship.wire.streams import STREAM

AWAY = 30.0
"""Seconds that a broker may be away in the middle of a query."""

_RUN_BYTES = 8 * 1024 * 1024
_RUN_MESSAGES = 2000
_LAG = 0.1  # seconds until a replica that lags behind its leader is asked again
_PATIENCE = 30.0  # seconds for the answer to a request
_ENDS = {"204", "404"}  # the status behind the last message of an answer: all sent, none found


class LostSequences(OperatorError):
    """Sequences that a query had still to read were removed from the stream."""


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """The sequences `[first, until)` of a stream whose subjects match the filter `subject`.

    With `fail_on_data_loss` it is an error if messages are removed before they are read.
    """

    subject: str
    first: int
    until: int
    stream: str = STREAM
    fail_on_data_loss: bool = False

    @property
    def first_message(self) -> dict[str, object]:
        """The request of the API for the first message from `first` on."""
        return {"seq": self.first, "next_by_subj": self.subject}


def require_unread(first: int, until: int, state: StreamState) -> None:
    """Raise `LostSequences` if the stream has removed some of the sequences `[first, until)`."""
    if first < (end := min(state.first, until)):
        raise LostSequences(
            f"sequences {first} to {end - 1} were removed from the stream before they were read; "
            "set failOnDataLoss to false to go on behind them"
        )


def read_range(connection: Connection, item: SequenceRange) -> Iterator[list[StreamMessage]]:
    """Yield the messages of a range in order, in runs of about 8 MiB, and prefetch the next run.

    Raises `BrokerAway` after half a minute without a broker, `LostSequences`, `Rejected`,
    `OperatorError`.
    """
    pending = background.submit(_fetch(connection, item))
    try:
        while run := pending.result():
            run, item = _advance(run, item)
            pending = background.submit(_fetch(connection, item))
            yield [one for raw in run if (one := StreamMessage.from_direct_get(raw))]
    finally:
        pending.cancel()


async def read_runs(
    connection: Connection, item: SequenceRange
) -> AsyncGenerator[list[RawMessage], None]:
    """Yield the messages of a range as `read_range` does, as they were received."""
    pending = asyncio.ensure_future(_fetch(connection, item))
    try:
        while run := await pending:
            run, item = _advance(run, item)
            pending = asyncio.ensure_future(_fetch(connection, item))
            yield run
    finally:
        pending.cancel()


def _advance(run: list[RawMessage], item: SequenceRange) -> tuple[list[RawMessage], SequenceRange]:
    """Return the messages of a run that belong to a range, and the rest of the range."""
    following = _sequence(run[-1]) + 1
    if following > item.until:
        run = [one for one in run if _sequence(one) < item.until]
    return run, replace(item, first=following)


def _sequence(message: RawMessage) -> int:
    head = AnswerHead.read(message.head)
    assert head is not None, "only messages of the stream are collected"
    return head.sequence


async def _fetch(connection: Connection, item: SequenceRange) -> list[RawMessage]:
    """Return the next messages of a range, maybe with some behind it; empty if it has no more."""
    if item.first >= item.until:
        return []
    most = min(_RUN_MESSAGES, item.until - item.first)
    request = item.first_message | {"batch": most, "max_bytes": _RUN_BYTES}

    async def ask(question: Callable[..., Awaitable[Answer]], *about: Any) -> Answer:
        # each for itself: a batch may have taken longer than `AWAY` on a slow network
        return await retry_until_answered(connection, lambda c: question(c, *about), AWAY)

    while True:
        run = await ask(_get_batch, item.stream, request)
        if item.fail_on_data_loss:
            state = await ask(require_stream, item.stream)
            require_unread(item.first, item.until, state)
        if run:
            return run
        if await ask(_is_empty, item):
            return []
        await asyncio.sleep(_LAG)


async def _is_empty(connection: Connection, item: SequenceRange) -> bool:
    """Whether the stream holds no more messages of a range, by a leader that knows the range's end.

    Raises `ConnectionLost` for a leader that does not: it was cut off, and others went on.
    """
    await _require_end(connection, item)
    found = await find_message(connection, item.stream, item.first_message)
    await _require_end(connection, item)  # the one before may have come from another leader
    return found is None or found.sequence >= item.until


async def _require_end(connection: Connection, item: SequenceRange) -> None:
    end = (await get_stream_state(connection, item.stream)).until
    if end < item.until:
        raise ConnectionLost(f"stream {item.stream} ends at {end - 1}, and had {item.until - 1}")


async def _get_batch(
    connection: Connection, stream: str, request: Mapping[str, object]
) -> list[RawMessage]:
    """Return the messages of one direct batched get, empty when there are none.

    Raises `BrokerAway`, `ConnectionLost`, and `Rejected` if the stream allows no direct gets.
    """
    found: list[RawMessage] = []
    ends: asyncio.Queue[str] = asyncio.Queue()

    def take(message: RawMessage) -> None:
        if AnswerHead.is_in(message.head):
            found.append(message)
        else:
            ends.put_nowait((message.headers or {}).get("Status", ""))

    await connection.connect()
    subject = connection.api_subject(f"DIRECT.GET.{stream}")
    async with connection.open_inbox(take) as inbox:
        await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
        status = await connection.guard(ends.get(), _PATIENCE, subject)
    if status not in _ENDS:
        allow = f"nats stream edit {stream} --allow-direct"
        raise Rejected(int(status or 0), 0, f"stream {stream} takes no direct gets; allow: {allow}")
    return found
