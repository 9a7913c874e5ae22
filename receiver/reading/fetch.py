"""Reads a partition's messages from the broker, in order and without a hole, through its durable pull consumer.

Runs in a Spark worker. In any doubt about where the consumer stands it is reset to the first sequence that is wanted;
a delivery out of its place is never passed on. What the consumer left out nobody could see: that it is as we made it is
asked once more behind every pull. Nothing is polled: a pull for what is not there yet waits at the broker.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from broker.connecting.client import BrokerClient
from broker.connecting.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.delivery import Delivery, parse
from broker.subjects import consumer_name
from broker.topology import STREAM, Topology
from receiver.assignment import LARGEST_PULL, Assignment
from receiver.reading import background

__all__ = ["Chunk", "Reading"]

_LEAST = (
    LARGEST_PULL // 2 + 65_536
)  # bytes; less is asked for only where many partitions share the memory
_PULL_MESSAGES = 8192  # the bundled broker refuses more than 10,000
_PATIENCE = 30.0  # seconds without a message; those of a pull are there already, or it ends at once
_PATIENCE_AMONG = 5.0  # the same where the leader may have died and others elect a new one
_BEAT = 1.5  # seconds between the signs of life that are asked for then
_LONGEST = 600.0  # seconds for a pull to end
_NO_CONSUMER = 10014
_NOTHING_THERE = ("404", "408")
_TOO_LARGE = "Exceeds MaxBytes"
_ALIVE = "100"
_LARGEST = 3 * LARGEST_PULL  # for a single message, of a broker that takes larger ones than ours
_NANOSECONDS = 1_000_000_000
_LEFT = "408 left"  # the broker's own word for a pull whose time is up, and ours for one that is given up


@dataclass(frozen=True, slots=True)
class Chunk:
    """The messages of one pull, in stream order, none missing between them; `last` is the delivery of the last one."""

    messages: tuple[tuple[Delivery, Arrived], ...]
    size: int

    @property
    def last(self) -> Delivery:
        """The delivery of the last message; there is always one."""
        return self.messages[-1][0]


class Reading:
    """What a partition has from `first` on, for one stay. While a chunk is being written the next one is fetched."""

    def __init__(self, connection: Connection, assignment: Assignment, first: int) -> None:
        """Ask nothing yet."""
        self._limit = assignment.limit
        self._source = _Source(connection, assignment, first)
        self._ahead: Future[Chunk | None] | None = None
        self._size = 0

    def batch(self, wait: float = 0.0) -> Iterator[Chunk]:
        """Yield a batch: what is there, about its limit of bytes; wait at most `wait` seconds for its first message.

        When there is more, its first pull is under way as soon as the last chunk of this batch is out. Raises
        `ConnectionLost`, `Rejected` or TimeoutError; the consumer then stands nobody knows where, and the next stay puts
        it back.
        """
        self._size = 0
        pending = self._ahead or self._pull(wait)
        while True:
            self._ahead = pending
            chunk = pending.result(2 * _LONGEST + wait)
            self._ahead = None
            if chunk is None:
                return
            self._size += chunk.size
            is_full = self._size >= self._limit
            if chunk.last.pending:
                self._size = 0 if is_full else self._size
                self._ahead = pending = self._pull()
            proof = background.submit(self._source.prove())  # while the chunk is being written
            yield chunk
            proof.result(2 * _PATIENCE)
            if is_full or not chunk.last.pending:
                return

    def _pull(self, wait: float = 0.0) -> "Future[Chunk | None]":
        return background.submit(self._source.pull(self._limit - self._size, wait))

    @property
    def is_wanted_elsewhere(self) -> bool:
        """Whether the driver has asked for the end of the stay."""
        return self._source.left.is_set()

    def rest(self, seconds: float) -> None:
        """Sleep, or return as soon as the driver asks for the end of the stay."""
        if seconds > 0:
            self._source.left.wait(seconds)

    def __enter__(self) -> "Reading":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ahead:
            self._ahead.cancel()
        background.submit(self._source.close())


class _Source:
    """The pulls of a stay. Lives on the loop; every pull has an inbox of its own, so that late deliveries are not mixed in."""

    def __init__(self, connection: Connection, assignment: Assignment, first: int) -> None:
        self._connection = connection
        self._assignment = assignment
        self._first = first
        self._consumer = consumer_name(assignment.partition)
        self._pulls = self._beats = 0
        self._inbox = ""
        self._number = 1
        self._sequence = first
        self._taken: list[tuple[Delivery, Arrived]] = []
        self._size = 0
        self._ended: asyncio.Future[str] | None = None
        self._subscriptions: list[Any] = []
        self._client: BrokerClient | None = None
        self.left = threading.Event()

    async def _open(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            self._client = await self._connection.client()
        self._inbox = self._connection.new_inbox()
        tap = self._connection.tap
        self._subscriptions.append(await tap(f"{self._inbox}.*", self._take))
        if self._assignment.leave:
            self._subscriptions.append(await tap(self._assignment.leave, self._leave))
        await self._position()

    async def pull(self, most: int, wait: float) -> Chunk | None:
        """Pull once, at most about `most` bytes; None when nothing has come for `wait` seconds, or we are to leave.

        Raises `ConnectionLost` for deliveries that are not the next ones.
        """
        if self._subscriptions:
            self._check_client()
            return await self._pull(most, wait)
        await self._open()
        try:
            return await self._pull(most, wait)
        except _Doubt:  # somebody else uses the consumer
            await self._reset()
            return await self._pull(most, wait)

    def _check_client(self) -> None:
        """Raise `ConnectionLost` when the client was lost, and our subscriptions with it.

        Another one is not waited for here: a stay is as well over, and whoever is told to stop need not wait for it.
        """
        if self._client is None or not self._connection.is_on(self._client):
            raise ConnectionLost("the connection was lost")

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
        if int(delivered["stream_seq"]) == self._first - 1:
            self._number = int(delivered["consumer_seq"]) + 1
        else:
            await self._reset()

    async def prove(self) -> None:
        """Raise `ConnectionLost` or `Rejected` unless the consumer is as we made it: else something may have been left out."""
        self._check_client()
        await self._delivered()

    async def _delivered(self) -> dict[str, Any]:
        info = await self._connection.api(f"CONSUMER.INFO.{STREAM}.{self._consumer}")
        wanted, config = Topology().consumer(self._assignment.partition), info["config"]
        changed = [key for key, value in wanted.items() if config.get(key) != value]
        if changed or config.get("headers_only"):
            raise ConnectionLost(
                f"consumer {self._consumer} was changed ({', '.join(changed) or 'headers_only'}) and might leave lines "
                "out; delete it, it is made again"
            )
        if info.get("paused"):
            raise ConnectionLost(
                f"consumer {self._consumer} is paused: `nats consumer resume {STREAM} {self._consumer}`, or delete it"
            )
        return dict(info["delivered"])

    async def _reset(self) -> None:
        # a reset of a consumer that is not there is never answered (2.15.1)
        await self._connection.api(
            f"CONSUMER.RESET.{STREAM}.{self._consumer}", {"seq": self._first}
        )
        self._number, self._sequence = 1, self._first

    async def _pull(self, most: int, wait: float) -> Chunk | None:
        """Pull once. A pull that may wait ends with what is there as soon as something is (2.15.1)."""
        if self.left.is_set():
            return None
        self._pulls += 1
        self._taken, self._size = [], 0
        self._ended = asyncio.get_running_loop().create_future()
        request: dict[str, int | bool] = {
            "batch": _PULL_MESSAGES,
            "max_bytes": min(max(most, _LEAST), self._assignment.pull),
            "no_wait": True,
        }
        if (
            most == _LARGEST
        ):  # a message larger than what is asked for would never come: ask for it alone
            request |= {"batch": 1, "max_bytes": _LARGEST}
        if wait > 0:
            request["expires"] = int(wait * _NANOSECONDS)
        if self._has_beats(wait):
            request["idle_heartbeat"] = int(_BEAT * _NANOSECONDS)
        await self._connection.publish(
            self._connection.api_now(f"CONSUMER.MSG.NEXT.{STREAM}.{self._consumer}"),
            json.dumps(request).encode(),
            reply=f"{self._inbox}.{self._pulls}",
        )
        status = await self._connection.guard(self._end_of(self._ended, wait), _LONGEST + wait)
        if self._taken:
            return self._checked()
        if _TOO_LARGE in status and most != _LARGEST:
            return await self._pull(_LARGEST, 0)
        if not status.startswith(_NOTHING_THERE):
            raise ConnectionLost(f"the broker ended a pull with {status}")
        return None

    async def _end_of(self, ended: "asyncio.Future[str]", wait: float) -> str:
        """Return the status that ends a pull, however slow the line is, as long as something comes."""
        came, patience = -1, self._patience(wait)
        while not ended.done():
            if len(self._taken) + self._beats == came:
                raise ConnectionLost(f"nothing came for {patience:g} s")
            came = len(self._taken) + self._beats
            await asyncio.wait({ended}, timeout=patience)
        return ended.result()

    def _has_beats(self, wait: float) -> bool:
        # the broker takes none that are longer than half of the time
        return self._connection.has_choice and wait >= 2 * _BEAT

    def _patience(self, wait: float) -> float:
        if self._has_beats(wait):
            return 2 * _BEAT
        return wait + (_PATIENCE_AMONG if self._connection.has_choice else _PATIENCE)

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
            if headers.get("Status") == _ALIVE:
                self._beats += 1
                return
            self._ended.set_result(f"{headers.get('Status', '')} {headers.get('Description', '')}")

    def _leave(self, message: Arrived) -> None:
        # a pull that waits is given up; should the broker answer it all the same, the next stay finds the consumer elsewhere
        self.left.set()
        if self._ended and not self._ended.done() and not self._taken:
            self._ended.set_result(_LEFT)

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await self._connection.guard(subscription.unsubscribe(), 5)


class _Doubt(ConnectionLost):
    """The consumer does not stand where it was left."""
