"""Reads a partition for a session, in order and complete, through the partition's durable consumer.

Runs in a Spark worker. The offset says where to read, never the consumer: if its position is not
the wanted one, or a delivery is out of place, it is reset to the next sequence. Nothing polls: a
pull waits at the broker for new messages.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, TypeVar

from nats_logship.app.timestamps import SECOND
from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.pulling import Pulled, pull_singly
from nats_logship.client.stream_reader import Messages, OutOfOrder, StreamReader
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.subjects import consumer_name, partition_filter
from receiver.consume.assignment import LARGEST_PULL, Assignment

_LEAST = LARGEST_PULL // 2 + 65_536  # bytes; less only where many partitions share the memory
_PULL_MESSAGES = 8192  # the bundled broker refuses more than 10,000
_SINGLE = 256  # messages that are pulled one by one; the broker takes 512 requests for a consumer
_SECONDS = 1.0  # of a batch: a fleet may write small messages as fast as they are read
_CONNECT = 30.0  # seconds
_LONGEST = 600.0  # seconds for a pull to end
_FIRST_PULL, _LEAST_PULL = 1024 * 1024, 128 * 1024  # bytes
_QUICK, _SLOW = 1.0, 5.0  # seconds for a pull
_LARGEST = 3 * LARGEST_PULL  # for a single message of a broker that takes larger ones than ours

Answer = TypeVar("Answer")


class PartitionReader:
    """The messages of a partition from `first` on, for one session.

    The next messages are fetched while those before them are written. A task's thread calls the
    public methods; the others run on the worker's event loop.
    """

    def __init__(
        self, connection: Connection, assignment: Assignment, first: int, stream: str
    ) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._assignment = assignment
        name, filters = (
            consumer_name(assignment.partition),
            (partition_filter(assignment.partition),),
        )
        self._reader = StreamReader(connection, stream, name, filters)
        self._reader.next_sequence = first
        self._ahead: Future[Messages] | None = None
        self._left_over: Messages = ()
        self._is_ended = False
        self._size = _PullSize(assignment.pull)
        self._pending = 0  # messages that the consumer had left after the last delivery
        self._single_bytes = 0  # limit of a message that is pulled singly
        self._pulling: asyncio.Future[Any] | None = None
        self._was_cut = False  # by a message without headers and payload
        self._subscription: Any = None  # to the driver's request to leave
        self._client: BrokerClient | None = None
        self._leave = threading.Event()

    def pull_batch(self, wait: float = 0.0) -> Iterator[Messages]:
        """Yield the messages of a batch, up to about its limit of bytes.

        These are the waiting messages, read for at most a second, and those that arrive for the
        seconds that the session gathers. Waits at most `wait` seconds for the first message. Raises
        `ConnectionLost`, `Rejected` or TimeoutError. The consumer's position is then unknown; the
        next session resets it.
        """
        size, limit, self._is_ended = 0, self._assignment.limit, False
        began = float("inf")
        while messages := self._next(limit - size, wait):
            began = min(began, time.monotonic())
            size += _bytes_of(messages)
            pending, is_full = messages[-1][0].pending, size >= limit
            # on a slow line the commit would wait behind the next pull
            if (pending or wait) and not self._ahead and not self._size.is_slow:
                most = limit if is_full else limit - size
                pause = 0.0 if pending else self._assignment.session.linger
                later = self._fetch(most, 0.0 if pending else wait, pause)
                self._ahead = background.submit(later)
            yield messages
            passed = time.monotonic() - began
            if is_full or self._is_ended or not self._ahead or passed > _SECONDS:
                return
            left = max(0.0, self._assignment.session.gather - passed)
            if not pending and not wait_for([self._ahead], left).done:
                return

    def end_batch(self, rest: Messages) -> None:
        """End the batch; the next one begins with `rest`, the end of the messages yielded last."""
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

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead:
            self._ahead.cancel()
        background.submit(self._unsubscribe())

    # on the worker's loop

    async def _fetch(self, most: int, wait: float, pause: float = 0.0) -> Messages:
        """Pull about `most` bytes at most, after a pause.

        Empty if no message comes within `wait` seconds, or the driver asks for the end of the
        session. Raises `ConnectionLost` if even a reset consumer does not deliver the next message.
        """
        await asyncio.sleep(pause)
        await self._open()
        try:
            if messages := await self._pull_behind_cut(most):
                self._accept(messages)
                return messages
            pulled = await self._pull(most, wait)
            _require_payloads(pulled.messages)
            self._accept(pulled.messages)
        except OutOfOrder:
            # somebody else used or changed the consumer, or an earlier pull was still answered
            await self._start_over()
            pulled = await self._pull(most, wait)
            self._accept(pulled.messages)
        if pulled.is_cut:
            await self._start_over()
            self._was_cut = True
        return pulled.messages

    async def _open(self) -> None:
        """Connect and position the consumer, once; raises `ConnectionLost` for a later client.

        A new connection is not waited for: the driver may ask the session to end meanwhile.
        """
        if self._client is not None:
            if not self._connection.is_current(self._client):
                raise ConnectionLost("the connection was lost")
            return
        async with asyncio.timeout(_CONNECT):
            self._client = await self._connection.client()
        if leave := self._assignment.leave:
            self._subscription = await self._connection.tap(leave, self._give_up)
        delivered = (await self._open_consumer())["delivered"]
        if int(delivered["stream_seq"]) == self._reader.next_sequence - 1:
            self._reader.next_number = int(delivered["consumer_seq"]) + 1
        else:
            # also where the number is as before: each reset counts deliveries from 1 again
            await self._reset()

    async def _open_consumer(self) -> dict[str, Any]:
        """Return the state of the consumer, which is created if there is none.

        Raises `ConnectionLost` if somebody has changed its configuration.
        """
        reader, config = self._reader, consumer_config(self._assignment.partition)
        try:
            state = await self._connection.api(f"CONSUMER.INFO.{reader.consumer}")
        except Rejected as error:
            if error.error != ErrorCode.CONSUMER_NOT_FOUND:
                raise
            request = {"stream_name": reader.stream, "config": config}
            call = f"CONSUMER.CREATE.{reader.consumer}.{config['filter_subject']}"
            state = await self._connection.api(call, request)
        wanted = {"headers_only": None, "pause_until": None, **config}
        found = state["config"]
        if changed := [key for key, value in wanted.items() if found.get(key) != value]:
            raise ConnectionLost(
                f"the configuration of consumer {reader.name} was changed ({', '.join(changed)}), "
                "so it may leave lines out; delete it, and it is created again"
            )
        return state

    async def _reset(self) -> None:
        # a reset of a consumer that does not exist is never answered (2.15.1)
        request = {"seq": self._reader.next_sequence}
        await self._connection.api(f"CONSUMER.RESET.{self._reader.consumer}", request)
        self._reader.next_number = 1

    async def _start_over(self) -> None:
        await self._open_consumer()
        await self._reset()

    async def _pull(self, most: int, wait: float) -> Pulled:
        """Pull once. A pull that waits ends as soon as there are messages (2.15.1).

        Raises `OutOfOrder` if nothing comes of the messages that the consumer had left: after a
        reset, a pull that was given up may have taken them.
        """
        if self._leave.is_set():
            return _NOTHING
        size, began = self._limit(most), time.monotonic()
        pulled = await self._ask(_PULL_MESSAGES, size, 0.0 if self._pending else wait)
        if not pulled.messages and pulled.is_too_large:
            # the next message is larger than `size`, and would never come
            pulled = await self._ask(1, _LARGEST, 0.0)
        if pulled.messages:
            took = time.monotonic() - began
            if took < _QUICK or not wait:  # otherwise the time says nothing about the line
                self._size.adapt(_bytes_of(pulled.messages), took)
        elif self._pending and not self._leave.is_set():
            self._pending = 0
            raise OutOfOrder("nothing came of the messages that the consumer had left")
        return pulled

    def _accept(self, messages: Messages) -> None:
        self._reader.verify(messages)
        if messages:
            self._pending = messages[-1][0].pending

    async def _ask(self, most: int, size: int, wait: float) -> Pulled:
        """Pull, or return nothing as soon as the driver asks for the end of the session.

        The broker may answer the pull nevertheless; the next session then resets the consumer.
        """
        return await self._unless_left(self._reader.pull(most, size, wait)) or _NOTHING

    async def _pull_behind_cut(self, most: int) -> Messages:
        """Pull the messages behind one that has cut a pull, by one request each, sent at once.

        If the first message is too large for its request, the next time asks for fewer and larger
        ones.
        """
        if not self._was_cut or self._leave.is_set():
            return ()
        self._was_cut, size = False, self._limit(most)
        self._single_bytes = min(max(self._single_bytes, size // _SINGLE), size)
        count = size // self._single_bytes
        consumer, limit = self._reader.consumer, self._single_bytes
        pulling = pull_singly(self._connection, consumer, count, limit)
        messages = await self._unless_left(pulling) or ()
        if not messages:
            self._single_bytes *= 4
        elif len(messages) == count and 4 * max(map(_size_of, messages)) <= self._single_bytes:
            self._single_bytes //= 4
        return messages

    def _limit(self, most: int) -> int:
        return min(max(most, _LEAST), self._size.now)

    async def _unless_left(self, pulling: Coroutine[Any, Any, Answer]) -> Answer | None:
        self._pulling = pulled = asyncio.ensure_future(pulling)
        try:
            return await pulled
        except asyncio.CancelledError:
            if not self._leave.is_set():
                raise
            return None
        finally:
            pulled.cancel()

    def _give_up(self, message: RawMessage) -> None:
        self._leave.set()
        if self._pulling:
            self._pulling.cancel()

    async def _unsubscribe(self) -> None:
        if self._subscription is not None:
            await self._connection.guard(self._subscription.unsubscribe(), 5)


class _PullSize:
    """How many bytes the next pull asks for: more if the line is quick, fewer if it is slow."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = min(_FIRST_PULL, most)
        self.is_slow = False

    def adapt(self, received: int, seconds: float) -> None:
        """Learn from a pull that brought so many bytes in so many seconds."""
        if seconds < _QUICK:
            self.is_slow = False
            if self.now < self._most and 2 * received >= self.now:
                self.now = min(2 * self.now, self._most)
        elif seconds > _SLOW:
            self.now, self.is_slow = max(self.now // 2, _LEAST_PULL), True


_NOTHING = Pulled([], "")


def _require_payloads(messages: Messages) -> None:
    """Raise `OutOfOrder` for a message without its payload: the consumer may deliver headers only.

    A publisher may write the same header. So the consumer is checked, and the message pulled again.
    """
    if any(not message.data and message.size for _, message in messages):
        raise OutOfOrder("a message came without its payload")


def _bytes_of(messages: Messages) -> int:
    """Count as the broker does: many small messages, or large headers, fill a batch, too."""
    return sum(map(_size_of, messages))


def _size_of(delivered: tuple[Delivery, RawMessage]) -> int:
    return sum(map(len, delivered[1]))


def consumer_config(partition: int) -> dict[str, Any]:
    """Return the configuration of a partition's durable pull consumer.

    Its ack floor is the committed offset. A delivery is repeated only by a reset, hence the long
    `ack_wait`.
    """
    return {
        "durable_name": consumer_name(partition),
        "deliver_policy": "all",
        "ack_policy": "all",
        "ack_wait": 86_400 * SECOND,  # a day, in nanoseconds
        "max_ack_pending": -1,
        "filter_subject": partition_filter(partition),
        "replay_policy": "instant",
    }
