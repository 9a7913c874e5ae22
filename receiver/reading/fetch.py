"""Reads a partition's messages from the broker, in order and without a hole, through its durable pull consumer.

Runs in a Spark worker. In any doubt about where the consumer stands it is reset to the first sequence that is wanted;
a delivery out of its place is never passed on.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from broker.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.subjects import consumer_name
from broker.topology import STREAM, Topology
from receiver.assignment import Assignment
from receiver.reading import background
from receiver.reading.delivery import Delivery, parse

__all__ = ["Chunk", "read"]

_PULL_BYTES = (
    16 * 1024 * 1024
)  # one pull at a time: the server drops a client with more than 64 MB unsent
_PULL_MESSAGES = 8192  # the bundled broker refuses more than 10,000
_PATIENCE = 30.0  # seconds without a message; those of a pull are there already, or it ends at once
_LONGEST = 600.0  # seconds for a pull to end
_NO_CONSUMER = 10014
_NOTHING_THERE = ("404", "408")
_TOO_LARGE = "Exceeds MaxBytes"
_LARGEST = 3 * _PULL_BYTES  # for a single message, of a broker that takes larger ones than ours


@dataclass(frozen=True, slots=True)
class Chunk:
    """The messages of one pull, in stream order, none missing between them; `last` is the delivery of the last one."""

    messages: tuple[tuple[Delivery, Arrived], ...]
    size: int

    @property
    def last(self) -> Delivery:
        """The delivery of the last message; there is always one."""
        return self.messages[-1][0]


def read(connection: Connection, assignment: Assignment) -> Iterator[Chunk]:
    """Yield what the partition has from `assignment.first` on, until about its limit of bytes or nothing more.

    While a chunk is being written the next one is fetched. Raises `ConnectionLost`, `Rejected` or TimeoutError; the
    consumer then stands nobody knows where, and the next reading puts it back.
    """
    source = _Source(connection, assignment)
    pending = background.submit(source.open())
    try:
        size = 0
        while True:
            chunk = pending.result(2 * _LONGEST)
            if chunk is None:
                return
            size += chunk.size
            more = size < assignment.limit and chunk.last.pending > 0
            if more:
                pending = background.submit(source.pull(min(_PULL_BYTES, assignment.limit - size)))
            yield chunk
            if not more:
                return
    finally:
        pending.cancel()
        background.submit(source.close())


class _Source:
    """One batch's pulls. Lives on the loop; every pull has an inbox of its own, so that late deliveries are not mixed in."""

    def __init__(self, connection: Connection, assignment: Assignment) -> None:
        self._connection = connection
        self._assignment = assignment
        self._consumer = consumer_name(assignment.partition)
        self._pulls = 0
        self._inbox = ""
        self._number = 1
        self._sequence = assignment.first
        self._taken: list[tuple[Delivery, Arrived]] = []
        self._size = 0
        self._ended: asyncio.Future[str] | None = None
        self._subscription: Any = None

    async def open(self) -> Chunk | None:
        async with asyncio.timeout(_PATIENCE):
            await self._connection.client()
        self._inbox = self._connection.new_inbox()
        self._subscription = await self._connection.tap(f"{self._inbox}.*", self._take)
        most = min(_PULL_BYTES, self._assignment.limit)
        await self._position()
        try:
            return await self.pull(most)
        except _Doubt:  # somebody else uses the consumer
            await self._reset()
            return await self.pull(most)

    async def _position(self) -> None:
        """Have the consumer stand at `first`. Its own delivery numbers prove nothing: each reset begins them anew."""
        try:
            delivered = await self._delivered()
        except Rejected as error:
            if error.error != _NO_CONSUMER:
                raise
            config = Topology().consumer(self._assignment.partition)
            await self._connection.api(
                f"CONSUMER.CREATE.{STREAM}.{self._consumer}.{config['filter_subject']}",
                {"stream_name": STREAM, "config": config},
            )
            delivered = await self._delivered()
        if int(delivered["stream_seq"]) == self._assignment.first - 1:
            self._number = int(delivered["consumer_seq"]) + 1
        else:
            await self._reset()

    async def _delivered(self) -> dict[str, Any]:
        info = await self._connection.api(f"CONSUMER.INFO.{STREAM}.{self._consumer}")
        wanted, config = Topology().consumer(self._assignment.partition), info["config"]
        if config.get("filter_subject") != wanted["filter_subject"] or config.get("headers_only"):
            raise ConnectionLost(
                f"consumer {self._consumer} was changed and would leave lines out; delete it"
            )
        return dict(info["delivered"])

    async def _reset(self) -> None:
        # a reset of a consumer that is not there is never answered (2.15.1)
        await self._connection.api(
            f"CONSUMER.RESET.{STREAM}.{self._consumer}", {"seq": self._assignment.first}
        )
        self._number, self._sequence = 1, self._assignment.first

    async def pull(self, most: int) -> Chunk | None:
        """Pull once; None when there is nothing. Raises `_Doubt` for deliveries that are not the next ones."""
        self._pulls += 1
        self._taken, self._size = [], 0
        self._ended = asyncio.get_running_loop().create_future()
        # a message larger than what is asked for would never come: ask for one of the largest at least
        request = {
            "batch": _PULL_MESSAGES,
            "max_bytes": max(most, _PULL_BYTES // 2 + 65_536),
            "no_wait": True,
        }
        await self._connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{self._consumer}",
            json.dumps(request).encode(),
            reply=f"{self._inbox}.{self._pulls}",
        )
        status = await self._connection.guard(self._end_of(self._ended), _LONGEST)
        if self._taken:
            return self._checked()
        if _TOO_LARGE in status and most < _LARGEST:
            return await self.pull(_LARGEST)
        if not status.startswith(_NOTHING_THERE):
            raise ConnectionLost(f"the broker ended a pull with {status}")
        return None

    async def _end_of(self, ended: "asyncio.Future[str]") -> str:
        """Return the status that ends a pull, however slow the line is, as long as something comes."""
        taken = -1
        while not ended.done():
            if len(self._taken) == taken:
                raise ConnectionLost(f"nothing came for {_PATIENCE:g} s")
            taken = len(self._taken)
            await asyncio.wait({ended}, timeout=_PATIENCE)
        return ended.result()

    def _checked(self) -> Chunk:
        number, sequence = self._number, self._sequence
        for delivery, _ in self._taken:
            if delivery.number != number or delivery.sequence < sequence or delivery.attempt != 1:
                raise _Doubt(f"delivery {delivery} where number {number} was due")
            number, sequence = delivery.number + 1, delivery.sequence + 1
        self._number, self._sequence = number, sequence
        return Chunk(tuple(self._taken), self._size)

    def _take(self, message: Arrived) -> None:
        if message.subject.startswith("logs."):
            delivery = parse(message.reply)
            if delivery is not None:
                self._taken.append((delivery, message))
                self._size += len(message.data)
        elif (
            message.subject == f"{self._inbox}.{self._pulls}"
            and self._ended
            and not self._ended.done()
        ):
            headers = message.headers or {}
            self._ended.set_result(f"{headers.get('Status', '')} {headers.get('Description', '')}")

    async def close(self) -> None:
        if self._subscription is not None:
            await self._connection.guard(self._subscription.unsubscribe(), 5)


class _Doubt(ConnectionLost):
    """The consumer does not stand where it was left."""
