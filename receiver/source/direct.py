"""Direct batched gets (ADR-31): messages of a stream without a consumer. Asks once; knows nothing of ranges."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from broker.client.connection import BrokerAway, Connection, ConnectionLost, Message, Rejected
from receiver.source.stored import Stored

__all__ = ["patiently", "request_batch"]

_ANSWER = 30.0  # seconds
_HOW_TO_ALLOW = "stream {0} takes no direct gets; allow them: nats stream edit {0} --allow-direct"
_AWAY = 30.0  # seconds that a broker may be away in the middle of a query
_AGAIN = 0.25  # seconds
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


async def request_batch(
    connection: Connection, stream: str, request: dict[str, Any]
) -> list[Stored]:
    """Return what one request brings, empty when there is nothing.

    Raises `BrokerAway`, `ConnectionLost`, `Denied`, and `Rejected` when the stream allows no direct gets.
    """
    arrivals = _Arrivals(asyncio.get_running_loop().create_future())
    await connection.once()
    subject = await connection.api_subject(f"DIRECT.GET.{stream}")
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, arrivals.take)
    try:
        await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
        status = await connection.guard(_wait_for(arrivals.ended), _ANSWER, subject)
    finally:
        with suppress(ConnectionLost):  # which would take the place of what there was before
            await connection.guard(subscription.unsubscribe(), 1)
    if status not in {"204", "404"}:
        raise Rejected(int(status or 0), 0, _HOW_TO_ALLOW.format(stream))
    return arrivals.messages


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
    return Stored(int(sequence), time, subject, rest, payload)


async def _wait_for(future: "asyncio.Future[str]") -> str:
    return await future
