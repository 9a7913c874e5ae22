"""Reads a partition's messages from the broker, in order and without a hole, through its durable pull consumer.

Runs in a Spark worker. In any doubt about where the consumer stands it is reset to the first sequence that is wanted;
a delivery out of its place is never passed on. Nothing is polled: a pull for what is not there yet waits at the broker.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, TypeVar

from nats_logship.app.timestamps import SECOND
from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.pulling import Pulled, pull, pull_singly
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.subjects import consumer_name, partition_filter
from receiver.consume.assignment import LARGEST_PULL, Assignment

_LEAST = LARGEST_PULL // 2 + 65_536  # bytes; less only where many partitions share the memory
_PULL_MESSAGES = 8192  # the bundled broker refuses more than 10,000
_SINGLE = 256  # messages that are pulled one by one; the broker takes 512 requests for a consumer
_SECONDS = 1.0  # of a batch: small messages of a fleet may come as fast as they are written, without an end
_CONNECT = 30.0  # seconds
_LONGEST = 600.0  # seconds for a pull to end
_FIRST_PULL, _LEAST_PULL = 1024 * 1024, 128 * 1024  # bytes
_QUICK, _SLOW = 1.0, 5.0  # seconds for a pull
_LARGEST = 3 * LARGEST_PULL  # for a single message, of a broker that takes larger ones than ours

Answer = TypeVar("Answer")
Messages = Sequence[tuple[Delivery, RawMessage]]
"""What one pull has brought, in stream order, none missing between them."""


class PartitionReader:
    """What a partition has from `first` on, for one session. While messages are being written the next ones are fetched.

    A task's thread calls what is public; what is asynchronous runs on the worker's loop.
    """

    def __init__(
        self, connection: Connection, assignment: Assignment, first: int, stream: str
    ) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._assignment = assignment
        self._stream = stream
        self._consumer = f"{stream}.{consumer_name(assignment.partition)}"
        self._ahead: Future[Messages] | None = None
        self._left_over: Messages = ()
        self._is_ended = False
        self._most, self._is_slow = min(_FIRST_PULL, assignment.pull), False  # as the line suits
        self._number = 1
        self._sequence = first  # of the first message that is still to come
        self._pending = 0  # messages that the consumer had left behind the last one that came
        self._single_bytes = 0  # of a message that is pulled singly, at most
        self._pulling: asyncio.Future[Any] | None = None
        self._was_cut = False  # by a message without headers and payload
        self._word_to_leave: Any = None
        self._client: BrokerClient | None = None
        self._leave = threading.Event()

    def pull_batch(self, wait: float = 0.0) -> Iterator[Messages]:
        """Yield a batch, about its limit of bytes: what is there, for a second, and what comes for the seconds that the session gathers.

        Wait at most `wait` seconds for its first message. The next pull is under way while messages are being written.
        Raises `ConnectionLost`, `Rejected` or TimeoutError; the consumer then stands nobody knows where, and the next
        session puts it back.
        """
        size, limit, self._is_ended = 0, self._assignment.limit, False
        began = float("inf")
        while messages := self._next(limit - size, wait):
            began = min(began, time.monotonic())
            size += _bytes_of(messages)
            pending, is_full = messages[-1][0].pending, size >= limit
            # on a slow line the commit would wait behind it
            if (pending or wait) and not self._ahead and not self._is_slow:
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

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead:
            self._ahead.cancel()
        background.submit(self._unsubscribe())

    # on the worker's loop

    async def _fetch(self, most: int, wait: float, pause: float = 0.0) -> Messages:
        """Pull about `most` bytes at most, after a pause; nothing when nothing has come for `wait` seconds, or we are to leave.

        Raises `ConnectionLost` for deliveries that are not the next ones.
        """
        await asyncio.sleep(pause)
        if self._client is None:
            async with asyncio.timeout(_CONNECT):
                self._client = await self._connection.client()
            if leave := self._assignment.leave:
                self._word_to_leave = await self._connection.tap(leave, self._give_up)
            await self._position()
        elif not self._connection.is_current(self._client):
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
        name, wanted = self._consumer, consumer_config(self._assignment.partition)
        try:
            info = await self._connection.api(f"CONSUMER.INFO.{name}")
        except Rejected as error:
            if error.error != ErrorCode.CONSUMER_NOT_FOUND:
                raise
            request = {"stream_name": self._stream, "config": wanted}
            created = f"CONSUMER.CREATE.{name}.{wanted['filter_subject']}"
            info = await self._connection.api(created, request)
        config, wanted = info["config"], {"headers_only": None, "pause_until": None, **wanted}
        if changed := [key for key, value in wanted.items() if config.get(key) != value]:
            raise ConnectionLost(
                f"consumer {info['name']} was changed ({', '.join(changed)}) and might leave lines out; delete it, it is "
                "made again"
            )
        return info

    async def _reset(self) -> None:
        # a reset of a consumer that is not there is never answered (2.15.1)
        await self._connection.api(f"CONSUMER.RESET.{self._consumer}", {"seq": self._sequence})
        self._number = 1

    async def _pull(self, most: int, wait: float, *, is_sure: bool = False) -> Messages:
        """Pull once. A pull that may wait ends with what is there as soon as something is (2.15.1).

        Raises `_Doubt` for what is not next, and unless we are sure of the consumer for a message without its payload.
        """
        if self._leave.is_set():
            return ()
        size, clock = min(max(most, _LEAST), self._most), asyncio.get_running_loop().time
        if self._was_cut:
            self._was_cut = False
            messages = await self._ask_singly(size)
            self._check(messages)
            if messages:
                return messages
        began = clock()
        pulled = await self._ask(_PULL_MESSAGES, size, 0.0 if self._pending else wait)
        if not pulled.messages and pulled.is_too_large:
            # a message larger than what is asked for would never come: ask for it alone
            pulled = await self._ask(1, _LARGEST, 0.0)
        messages = pulled.messages
        self._expect_pending(messages)
        if messages:
            self._suit(messages, clock() - began, has_waited=bool(wait))
        if not is_sure and any(not message.data and message.size for _, message in messages):
            raise _Doubt("a message came without its payload")  # or its publisher says so
        self._check(messages)
        if pulled.is_cut:
            await self._begin_anew()
            self._was_cut = True
        return messages

    def _expect_pending(self, messages: Messages) -> None:
        """Raise `_Doubt` where nothing came of what the consumer had left.

        A pull that was cut may have taken it after the consumer was reset.
        """
        if not messages and self._pending and not self._leave.is_set():
            self._pending = 0
            raise _Doubt("nothing came of what the consumer had left")

    def _suit(self, messages: Messages, took: float, *, has_waited: bool) -> None:
        """Have the next pull bring more where a full one was quick, less where one was slow."""
        if took < _QUICK:
            self._is_slow = False
            if self._most < self._assignment.pull and 2 * _bytes_of(messages) >= self._most:
                self._most = min(2 * self._most, self._assignment.pull)
        elif took > _SLOW and not has_waited:
            self._most, self._is_slow = max(self._most // 2, _LEAST_PULL), True

    async def _begin_anew(self) -> None:
        await self._unchanged()
        await self._reset()

    async def _ask(self, most: int, size: int, wait: float) -> Pulled:
        """Pull, or return nothing as soon as we are to leave; should the broker answer then, the next session finds the consumer elsewhere."""
        pulling = pull(self._connection, self._consumer, most, size, wait)
        return await self._unless_left(pulling) or Pulled([], "")

    async def _ask_singly(self, size: int) -> Messages:
        """Pull what follows a message that has cut a pull, up to `size` bytes.

        Where the first message is too large for that, the next time fewer and larger ones are
        asked for.
        """
        self._single_bytes = min(max(self._single_bytes, size // _SINGLE), size)
        most = size // self._single_bytes
        pulling = pull_singly(self._connection, self._consumer, most, self._single_bytes)
        messages = await self._unless_left(pulling) or ()
        if not messages:
            self._single_bytes *= 4
        elif len(messages) == most and 4 * max(map(_size_of, messages)) <= self._single_bytes:
            self._single_bytes //= 4
        return messages

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

    def _check(self, messages: Messages) -> None:
        number, sequence = self._number, self._sequence
        for delivery, _ in messages:
            if delivery.number != number or delivery.sequence < sequence or delivery.attempt != 1:
                raise _Doubt(f"delivery {delivery} where number {number} was due")
            number, sequence = delivery.number + 1, delivery.sequence + 1
        self._number, self._sequence = number, sequence
        if messages:
            self._pending = messages[-1][0].pending

    def _give_up(self, message: RawMessage) -> None:
        self._leave.set()
        if self._pulling:
            self._pulling.cancel()

    async def _unsubscribe(self) -> None:
        if self._word_to_leave is not None:
            await self._connection.guard(self._word_to_leave.unsubscribe(), 5)


def _bytes_of(messages: Messages) -> int:
    """Count as the broker does: many small messages, or large headers, fill a batch, too."""
    return sum(map(_size_of, messages))


def _size_of(delivered: tuple[Delivery, RawMessage]) -> int:
    return sum(map(len, delivered[1]))


class _Doubt(ConnectionLost):
    """The consumer does not stand where it was left."""


def consumer_config(partition: int) -> dict[str, Any]:
    """Return the configuration of a partition's durable pull consumer.

    The ack floor is the committed offset; a delivery is repeated only by a reset, hence the long `ack_wait`.
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
