"""Reads a range of a stream by sequence, as often as wanted: no consumer is used, none is touched.

Direct batched gets (ADR-31): each says where it begins, so a lost connection costs one of them and nothing else.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from broker.connection import BrokerAway, Connection, ConnectionLost, Message, Rejected
from broker.subjects import partition_filter
from receiver import background
from receiver.ranges import Range
from receiver.schema import Stored

__all__ = ["patiently", "read", "request_batch"]

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_MESSAGES = 2000
_ANSWER = 30.0  # seconds
_AWAY = 30.0  # seconds that a broker may be away in the middle of a query
_AGAIN = 0.25  # seconds
_NO_MESSAGE = 10037
_OURS = ("Nats-Sequence", "Nats-Time-Stamp", "Nats-Subject")
_ADDED = {*_OURS, "Nats-Stream", "Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"}

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Arrivals:
    """What came in for one request; `ended` holds the status that closes it."""

    ended: "asyncio.Future[str]"
    messages: list[Stored] = field(default_factory=list)

    async def take(self, message: Message) -> None:
        headers = message.headers or {}
        if "Nats-Sequence" in headers:
            self.messages.append(_stored(headers, message.data))
        elif not self.ended.done():
            self.ended.set_result(headers.get("Status", ""))


def read(connection: Connection, stream: str, item: Range) -> Iterator[list[Stored]]:
    """Yield the messages of a range in order, in runs of about 8 MiB; the next run is fetched meanwhile.

    Raises `BrokerAway` when the broker stays away for longer than half a minute, `Rejected`.
    """
    pending = background.submit(_next_run(connection, stream, item))
    try:
        while run := pending.result():
            rest = Range(item.partition, run[-1].sequence + 1, item.until)
            pending = background.submit(_next_run(connection, stream, rest))
            if run[-1].sequence >= item.until:
                run = [message for message in run if message.sequence < item.until]
            yield run
    finally:
        pending.cancel()


async def _next_run(connection: Connection, stream: str, item: Range) -> list[Stored]:
    while item.first < item.until:
        if run := await patiently(connection, lambda: _request(connection, stream, item)):
            return run if run[0].sequence < item.until else []
        if await patiently(connection, lambda: _is_read(connection, stream, item)):
            return []
        await asyncio.sleep(_AGAIN)  # a replica that is behind its leader answered
    return []


async def _request(connection: Connection, stream: str, item: Range) -> list[Stored]:
    return await request_batch(
        connection,
        stream,
        {
            "seq": item.first,
            "next_by_subj": partition_filter(item.partition),
            "batch": min(_BATCH_MESSAGES, item.until - item.first),
            "max_bytes": _BATCH_BYTES,
        },
    )


async def request_batch(
    connection: Connection, stream: str, request: dict[str, Any]
) -> list[Stored]:
    """Return what one direct batched get brings, empty when there is nothing; raises `ConnectionLost`, `Rejected`."""
    arrivals = _Arrivals(asyncio.get_running_loop().create_future())
    await connection.once()
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, arrivals.take)
    try:
        await connection.publish(
            f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), reply=inbox
        )
        status = await connection.guard(_wait_for(arrivals.ended), _ANSWER)
    finally:
        await connection.guard(subscription.unsubscribe(), 1)
    if status not in {"204", "404"}:
        raise Rejected(int(status or 0), 0, f"stream {stream} takes no direct gets")
    return arrivals.messages


async def _is_read(connection: Connection, stream: str, item: Range) -> bool:
    # the leader has the last word on whether a range has nothing more
    request = {"seq": item.first, "next_by_subj": partition_filter(item.partition)}
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", request)
    except Rejected as error:
        if error.error == _NO_MESSAGE:
            return True
        raise
    return bool(answer["message"]["seq"] >= item.until)


async def patiently(connection: Connection, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what `call` returns, tried again while the broker is away; raises `BrokerAway` after half a minute."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _AWAY
    while True:
        try:
            return await call()
        except (BrokerAway, ConnectionLost) as error:
            if loop.time() > until:
                raise BrokerAway(
                    f"broker at {connection.servers} went away during the query: {error}"
                ) from None
        await asyncio.sleep(_AGAIN)


def _stored(headers: dict[str, str], payload: bytes) -> Stored:
    sequence, time, subject = (headers[name] for name in _OURS)
    rest = {name: value for name, value in headers.items() if name not in _ADDED}
    return Stored(int(sequence), datetime.fromisoformat(time), subject, rest, payload)


async def _wait_for(future: "asyncio.Future[str]") -> str:
    return await future
