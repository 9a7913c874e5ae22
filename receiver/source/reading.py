"""Reads a range of a stream by sequence, as often as wanted, by direct batched gets (ADR-31): no consumer is used, none is touched.

Each request says where it begins, so a lost connection costs one of them and nothing else.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from broker.client.connection import BrokerAway, Connection, ConnectionLost, Message, Rejected
from receiver.consume import background
from receiver.source.ranges import Range

__all__ = ["SourceMessage", "patiently", "read", "request_batch"]

_RUN_BYTES = 8 * 1024 * 1024
_RUN_MESSAGES = 2000
_FIRST_MESSAGES = 16  # before anything is known of how close they lie
_LAG = 0.1  # seconds until a replica that is behind its leader is asked again
_NO_MESSAGE = 10037
_ANSWER = 30.0  # seconds
_HOW_TO_ALLOW = "stream {0} takes no direct gets; allow them: nats stream edit {0} --allow-direct"
_AWAY = 30.0  # seconds that a broker may be away in the middle of a query
_AGAIN = 0.25  # seconds
_OURS = ("Nats-Sequence", "Nats-Time-Stamp", "Nats-Subject")
_ADDED = {*_OURS, "Nats-Stream", "Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"}

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message of the stream; `time` is when it was stored, UTC, as the broker writes it."""

    sequence: int
    time: str
    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def header_size(self) -> int:
        """How many characters the names and values of its headers have: any message may have many, of any length."""
        return sum(len(name) + len(value) for name, value in self.headers.items())


def read(
    connection: Connection, item: Range, check: Callable[[Range], Awaitable[None]] | None = None
) -> Iterator[list[SourceMessage]]:
    """Yield the messages of a range in order, in runs of about 8 MiB; the next run is fetched meanwhile.

    `check` is awaited with what remained to be read behind each request, and may raise where retention has removed some of it.
    Raises `BrokerAway` when the broker stays away for longer than half a minute, `Rejected`.
    """
    pending = background.submit(_next_run(connection, item, _FIRST_MESSAGES, check))
    try:
        while True:
            run = pending.result()
            is_last = run.rest.first >= run.rest.until
            if not is_last:
                pending = background.submit(_next_run(connection, run.rest, run.more, check))
            if run.messages:
                yield run.messages
            if is_last:
                return
    finally:
        pending.cancel()


@dataclass(frozen=True, slots=True)
class _Run:
    """Messages of a range, what remains of it, and about how many more there are in that."""

    messages: list[SourceMessage]
    rest: Range
    more: int = 0


async def _next_run(
    connection: Connection,
    item: Range,
    most: int,
    check: Callable[[Range], Awaitable[None]] | None,
) -> _Run:
    """Return the next messages of `item`, about `most`: what a request brings of behind the range is for nothing."""
    request = {
        "seq": item.first,
        "next_by_subj": item.subject,
        "batch": min(most, item.until - item.first),
        "max_bytes": _RUN_BYTES,
    }
    while item.first < item.until:
        run = await patiently(connection, lambda: request_batch(connection, item.stream, request))
        if check is not None:
            await check(item)
        if run:
            return _cut(run, item)
        if await patiently(connection, lambda: _is_read(connection, item)):
            break
        await asyncio.sleep(_LAG)
    return _Run([], replace(item, first=item.until))


async def _is_read(connection: Connection, item: Range) -> bool:
    """Whether a range has nothing more: the leader has the last word on that."""
    request = {"seq": item.first, "next_by_subj": item.subject}
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{item.stream}", request)
    except Rejected as error:
        if error.error == _NO_MESSAGE:
            return True
        raise
    return bool(answer["message"]["seq"] >= item.until)


def _cut(run: list[SourceMessage], item: Range) -> _Run:
    if run[-1].sequence >= item.until:
        inside = [message for message in run if message.sequence < item.until]
        return _Run(inside, replace(item, first=item.until))
    rest = replace(item, first=run[-1].sequence + 1)
    expected = len(run) * (rest.until - rest.first) // (rest.first - item.first)
    return _Run(run, rest, min(_RUN_MESSAGES, expected + expected // 10 + _FIRST_MESSAGES))


@dataclass(slots=True)
class _Arrivals:
    """What came in for one request; `ended` holds the status that closes it."""

    ended: "asyncio.Future[str]"
    messages: list[SourceMessage] = field(default_factory=list)

    async def take(self, message: Message) -> None:
        headers = message.headers or {}
        if "Nats-Sequence" in headers:
            sequence, time, subject = (headers[name] for name in _OURS)
            rest = {name: value for name, value in headers.items() if name not in _ADDED}
            self.messages.append(SourceMessage(int(sequence), time, subject, rest, message.data))
        elif not self.ended.done():
            self.ended.set_result(headers.get("Status", ""))

    async def status(self) -> str:
        return await self.ended


async def request_batch(
    connection: Connection, stream: str, request: dict[str, Any]
) -> list[SourceMessage]:
    """Return what one request brings, empty when there is nothing.

    Raises `BrokerAway`, `ConnectionLost`, `Denied`, and `Rejected` when the stream allows no direct gets.
    """
    arrivals = _Arrivals(asyncio.get_running_loop().create_future())
    await connection.once()
    subject = connection.api_subject(f"DIRECT.GET.{stream}")
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, arrivals.take)
    try:
        await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
        status = await connection.guard(arrivals.status(), _ANSWER, subject)
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
