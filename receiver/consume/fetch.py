"""Reads a partition's messages from the broker, in order and without a hole, through its durable pull consumer.

Runs in a Spark worker. In any doubt about where the consumer stands it is reset to the first sequence that is wanted;
a delivery out of its place is never passed on. Nothing is polled: a pull for what is not there yet waits at the broker.

A message without headers and payload ends a pull: nats-server (2.15.1) takes it as the last of the answers to a request
that crosses accounts, as those of a receiver with credentials do. What it had to deliver behind it never arrives, so the
consumer is reset to there.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from broker.client.answer import ConnectionLost, Rejected
from broker.client.client import BrokerClient
from broker.client.connection import Connection
from broker.wire.delivery import Delivery, RawMessage, parse
from broker.wire.streams import consumer_config
from broker.wire.subjects import consumer_name
from receiver.consume import background
from receiver.consume.assignment import LARGEST_PULL, Assignment

_LEAST = LARGEST_PULL // 2 + 65_536  # bytes; less only where many partitions share the memory
_PULL_MESSAGES = 8192  # the bundled broker refuses more than 10,000
_PATIENCE = 10.0  # seconds without a message; those of a pull are there already, or it ends at once
_CONNECT = 30.0  # seconds
_BEAT = 1.5  # seconds between the signs of life that are asked for of a pull that waits: its server may die
_LONGEST = 600.0  # seconds for a pull to end
_NO_CONSUMER = 10014
_NOTHING_THERE = ("404", "408")
_TOO_LARGE = "Exceeds MaxBytes"
_ALIVE = "100"
_LARGEST = 3 * LARGEST_PULL  # for a single message, of a broker that takes larger ones than ours
_NANOSECONDS = 1_000_000_000
_LEFT = "408 left"  # the broker's own word for a pull whose time is up, and ours for one that is given up
_EMPTY = "408 empty"  # a message without headers and payload

Messages = Sequence[tuple[Delivery, RawMessage]]
"""What one pull has brought, in stream order, none missing between them."""


class PartitionReader:
    """What a partition has from `first` on, for one session. While messages are being written the next ones are fetched.

    A task's thread calls what is public; what is asynchronous runs on the worker's loop. Every pull has an inbox of its own,
    so that late deliveries are not mixed in.
    """

    def __init__(
        self, connection: Connection, assignment: Assignment, first: int, stream: str
    ) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._assignment = assignment
        self._stream = stream
        self._partition = assignment.partition
        self._consumer = consumer_name(assignment.partition)
        self._ahead: Future[Messages] | None = None
        self._left_over: Messages = ()
        self._is_ended = False
        self._count = self._beats = 0
        self._inbox = ""
        self._number = 1
        self._sequence = first  # of the first message that is still to come
        self._taken: list[tuple[Delivery, RawMessage]] = []
        self._ended: asyncio.Future[str] | None = None
        self._lines: Any = None
        self._word_to_leave: Any = None
        self._client: BrokerClient | None = None
        self._leave = threading.Event()

    def batch(self, wait: float = 0.0) -> Iterator[Messages]:
        """Yield a batch: what is there, about its limit of bytes; wait at most `wait` seconds for its first message.

        When there is more, the first pull of the next one is under way as soon as the last messages of this batch are out.
        Raises `ConnectionLost`, `Rejected` or TimeoutError; the consumer then stands nobody knows where, and the next
        session puts it back.
        """
        size, limit, self._is_ended = 0, self._assignment.limit, False
        while messages := self._next(limit - size, wait):
            # as the broker counts: many small messages, or large headers, fill a batch, too
            size += sum(sum(map(len, message)) for _, message in messages)
            pending, is_full = messages[-1][0].pending, size >= limit
            if pending and not self._ahead:
                most = limit if is_full else limit - size
                self._ahead = background.submit(self._fetch(most, 0.0))
            yield messages
            if is_full or self._is_ended or not pending:
                return

    def end_batch(self, rest: Messages) -> None:
        """End the batch; the `rest` of the messages that were yielded last comes first in the next one."""
        self._left_over, self._is_ended = rest, True

    def _next(self, most: int, wait: float) -> Messages:
        if messages := self._left_over:
            self._left_over = ()
            return messages
        ahead = self._ahead or background.submit(self._fetch(most, wait))
        self._ahead = None
        return ahead.result(2 * _LONGEST + wait)

    @property
    def is_wanted_elsewhere(self) -> bool:
        """Whether the driver has asked for the end of the session."""
        return self._leave.is_set()

    def rest(self, seconds: float) -> None:
        """Sleep, or return as soon as the driver asks for the end of the session."""
        if seconds > 0:
            self._leave.wait(seconds)

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead:
            self._ahead.cancel()
        background.submit(self._unsubscribe())

    # on the worker's loop

    async def _listen(self) -> None:
        self._inbox = self._connection.new_inbox()
        self._lines = await self._connection.tap(f"{self._inbox}.*", self._take)

    async def _fetch(self, most: int, wait: float) -> Messages:
        """Pull about `most` bytes at most; nothing when nothing has come for `wait` seconds, or we are to leave.

        Raises `ConnectionLost` for deliveries that are not the next ones.
        """
        if self._client is None:
            async with asyncio.timeout(_CONNECT):
                self._client = await self._connection.client()
            await self._listen()
            if leave := self._assignment.leave:
                self._word_to_leave = await self._connection.tap(leave, self._give_up)
            await self._position()
        elif not self._connection.is_on(self._client):
            # another one is not waited for: whoever is told to stop need not wait for it
            raise ConnectionLost("the connection was lost")
        try:
            return await self._pull(most, wait)
        except _Doubt:  # somebody else uses the consumer or has changed it, or an earlier pull was still answered
            await self._begin_anew()
            return await self._pull(most, wait, is_sure=True)

    async def _position(self) -> None:
        """Have the consumer stand at what is wanted. Its own delivery numbers prove nothing: each reset begins them anew."""
        delivered = (await self._unchanged())["delivered"]
        if int(delivered["stream_seq"]) == self._sequence - 1:
            self._number = int(delivered["consumer_seq"]) + 1
        else:
            await self._reset()

    async def _unchanged(self) -> dict[str, Any]:
        """Return the state of the consumer, made where there is none; raises `ConnectionLost` for one that somebody has changed."""
        name, wanted = f"{self._stream}.{self._consumer}", consumer_config(self._partition)
        try:
            info = await self._connection.api(f"CONSUMER.INFO.{name}")
        except Rejected as error:
            if error.error != _NO_CONSUMER:
                raise
            request = {"stream_name": self._stream, "config": wanted}
            created = f"CONSUMER.CREATE.{name}.{wanted['filter_subject']}"
            info = await self._connection.api(created, request)
        config, wanted = info["config"], {"headers_only": None, "pause_until": None, **wanted}
        if changed := [key for key, value in wanted.items() if config.get(key) != value]:
            raise ConnectionLost(
                f"consumer {self._consumer} was changed ({', '.join(changed)}) and might leave lines out; delete it, it is "
                "made again"
            )
        return info

    async def _reset(self) -> None:
        # a reset of a consumer that is not there is never answered (2.15.1)
        await self._connection.api(
            f"CONSUMER.RESET.{self._stream}.{self._consumer}", {"seq": self._sequence}
        )
        self._number = 1

    async def _pull(self, most: int, wait: float, *, is_sure: bool = False) -> Messages:
        """Pull once. A pull that may wait ends with what is there as soon as something is (2.15.1).

        Raises `_Doubt` for what is not next, and unless we are sure of the consumer for a message without its payload.
        """
        if self._leave.is_set():
            return ()
        size = min(max(most, _LEAST), self._assignment.pull)
        status = await self._ask(_PULL_MESSAGES, size, wait)
        if not self._taken and _TOO_LARGE in status:
            # a message larger than what is asked for would never come: ask for it alone
            status = await self._ask(1, _LARGEST, 0)
        if not self._taken and not status.startswith(_NOTHING_THERE):
            raise ConnectionLost(f"the broker ended a pull with {status}")
        if not is_sure and any(not message.data and message.size for _, message in self._taken):
            raise _Doubt("a message came without its payload")  # or its publisher says so
        self._check()
        if status == _EMPTY:
            await self._begin_anew()
        return self._taken

    async def _begin_anew(self) -> None:
        """Reset the consumer, and hear no more of what an earlier pull may still bring."""
        await self._connection.guard(self._lines.unsubscribe(), _PATIENCE)
        await self._listen()
        await self._unchanged()
        await self._reset()

    async def _ask(self, batch: int, size: int, wait: float) -> str:
        """Have `batch` messages of `size` bytes delivered at most; return the status that ends the deliveries."""
        request: dict[str, int | bool] = {"batch": batch, "max_bytes": size, "no_wait": True}
        if wait > 0:
            request["expires"] = int(wait * _NANOSECONDS)
        patience = wait + _PATIENCE
        if wait >= 2 * _BEAT:  # the broker takes none that are longer than half of the time
            request["idle_heartbeat"] = int(_BEAT * _NANOSECONDS)
            patience = 2 * _BEAT
        self._count += 1
        self._taken = []
        self._ended = asyncio.get_running_loop().create_future()
        await self._connection.publish(
            self._connection.api_subject(f"CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"),
            json.dumps(request).encode(),
            reply=f"{self._inbox}.{self._count}",
        )
        return await self._connection.guard(self._end_of(self._ended, patience), _LONGEST + wait)

    async def _end_of(self, ended: "asyncio.Future[str]", patience: float) -> str:
        """Return the status that ends a pull, however slow the line is, as long as something comes."""
        came = -1
        while not ended.done():
            if len(self._taken) + self._beats == came:
                raise ConnectionLost(f"nothing came for {patience:g} s")
            came = len(self._taken) + self._beats
            await asyncio.wait({ended}, timeout=patience)
        return ended.result()

    def _check(self) -> None:
        number, sequence = self._number, self._sequence
        for delivery, _ in self._taken:
            if delivery.number != number or delivery.sequence < sequence or delivery.attempt != 1:
                raise _Doubt(f"delivery {delivery} where number {number} was due")
            number, sequence = delivery.number + 1, delivery.sequence + 1
        self._number, self._sequence = number, sequence

    def _take(self, message: RawMessage) -> None:
        if self._ended is None or self._ended.done():
            return
        if message.subject.startswith("logs."):
            if delivery := parse(message.reply):
                self._taken.append((delivery, message))
                if not message.head and not message.data:
                    self._ended.set_result(_EMPTY)
        elif message.subject == f"{self._inbox}.{self._count}":
            headers = message.headers or {}
            if headers.get("Status") == _ALIVE:
                self._beats += 1
            else:
                status = f"{headers.get('Status', '')} {headers.get('Description', '')}"
                self._ended.set_result(status)

    def _give_up(self, message: RawMessage) -> None:
        # a pull that waits is given up; should the broker answer it all the same, the next session finds the consumer elsewhere
        self._leave.set()
        if self._ended and not self._ended.done() and not self._taken:
            self._ended.set_result(_LEFT)

    async def _unsubscribe(self) -> None:
        for subscription in (self._lines, self._word_to_leave):
            if subscription is not None:
                await self._connection.guard(subscription.unsubscribe(), 5)


class _Doubt(ConnectionLost):
    """The consumer does not stand where it was left."""
