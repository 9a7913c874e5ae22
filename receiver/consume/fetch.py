"""Fetches a partition for a session, in order and complete, by the partition's durable consumer.

Runs on the event loop of a Spark worker. The offset says where to read, never the consumer: if its
position is not the wanted one, or a delivery is out of place, it is reset to the next sequence.

While messages wait at the broker, pulls bring as many as fit. Once none waits, one long request
streams those that come; nothing polls.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.pulling import Delivered, Pulled, PullLimits, pull_singly
from nats_logship.client.stream_reader import Messages, OutOfOrder, StreamReader
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.subjects import consumer_name, partition_filter
from receiver.consume.assignment import LARGEST_PULL, Assignment
from receiver.consume.offset_entry import EntryTaken, read_newest
from receiver.consume.task_end import Arrivals, TaskEnd

_PULL_MESSAGES = 8192  # the bundled broker refuses more than 10,000
_SINGLE = 256  # messages that are pulled one by one; the broker takes 512 requests for a consumer
_FOLLOW = 10.0  # seconds of a request for new messages: for so long it may outlive us
_CONNECT = 30.0  # seconds
_FIRST_PULL, _LEAST_PULL = 1024 * 1024, 128 * 1024  # bytes
_QUICK, _SLOW = 1.0, 5.0  # seconds for a pull
_LARGEST = 3 * LARGEST_PULL  # for a single message of a broker that takes larger ones than ours


class ConsumerChanged(ConnectionLost):
    """Somebody has changed the configuration of the consumer; a person decides."""


class Fetcher:
    """Fetches the messages of a partition from `first` on; they arrive in `arrivals`.

    `waits` says whether it waits for new messages; else it ends `arrivals` when none is left. The
    next messages are fetched while those before them are written.
    """

    def __init__(
        self, connection: Connection, assignment: Assignment, first: int, stream: str, end: TaskEnd
    ) -> None:
        """Ask nothing yet."""
        session = assignment.session
        self.arrivals = Arrivals()
        self.waits = min(session.silence, session.longest) > 0
        self.is_ready = False
        """Whether the consumer has the right position."""
        self._connection = connection
        self._assignment = assignment
        self._end = end
        name, only = consumer_name(assignment.partition), partition_filter(assignment.partition)
        self._reader = StreamReader(connection, stream, name, (only,))
        self._reader.next_sequence = first
        self._size = _PullSize(assignment.pull)
        self._pending = 0  # messages that the consumer had left after the last delivery
        self._single_bytes = 0  # limit of a message that is pulled singly
        self._was_cut = False  # by a message without headers and payload
        self._is_checked = False  # the consumer delivers payloads

    @property
    def has_pending(self) -> bool:
        """Whether messages that the consumer had left after the last delivery may still come."""
        return self._pending > 0

    async def run(self) -> None:
        """Fetch until cancelled.

        Raises `ConnectionLost` if even a reset consumer does not deliver the next message,
        `Rejected`, TimeoutError. The consumer's position is then unknown. Raises `EntryTaken` once
        another receiver has claimed the partition, if the consumer was to be reset.
        """
        async with asyncio.timeout(_CONNECT):
            client = await self._connection.client()
        leave = self._assignment.leave
        tap = await self._connection.tap(leave, self._take_request) if leave else None
        try:
            await self._set_position()
            self.is_ready = True
            self._end.note_activity()
            self.arrivals.awake()
            while True:
                await self.arrivals.wait_for(self._may_fetch)
                if not self._connection.is_current(client):
                    raise ConnectionLost("the connection was lost")
                await self._fetch()
        finally:
            if tap is not None:
                with suppress(ConnectionLost):
                    await self._connection.guard(tap.unsubscribe(), 5)

    def _take_request(self, _: RawMessage) -> None:
        self._end.ask()

    def _may_fetch(self) -> bool:
        arrivals = self.arrivals
        # on a slow line the commit would wait behind the next pull
        is_time = arrivals.is_wanted or not self._size.is_slow
        return arrivals.is_empty and not arrivals.is_ended and is_time

    # the consumer

    async def _set_position(self) -> None:
        """Have the consumer deliver the next message."""
        if self._assignment.renew:
            await self._delete_consumer()
        delivered = (await self._open_consumer())["delivered"]
        if int(delivered["stream_seq"]) == self._reader.next_sequence - 1:
            self._reader.next_number = int(delivered["consumer_seq"]) + 1
        else:
            # also where the number is as before: each reset counts deliveries from 1 again
            await self._reset()

    async def _delete_consumer(self) -> None:
        """Delete a consumer that does not answer, or does not deliver, to create it again.

        In a cluster whose servers die one after the other, the Raft group of a consumer in memory
        may be left without a leader for ever (nats-server 2.15.1).
        """
        try:
            await self._open_consumer()
        except ConsumerChanged:
            raise
        except (ConnectionLost, Rejected):
            pass  # that's fine: it is deleted for that
        await self._reader.delete()

    async def _open_consumer(self) -> dict[str, Any]:
        """Return the state of the consumer, which is created if there is none.

        Raises `ConsumerChanged` if somebody has changed its configuration.
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
            raise ConsumerChanged(
                f"the configuration of consumer {reader.name} was changed ({', '.join(changed)}), "
                "so it may leave lines out; delete it, and it is created again"
            )
        return state

    async def _reset(self) -> None:
        await self._require_owner()
        # a reset of a consumer that does not exist is never answered (2.15.1)
        request = {"seq": self._reader.next_sequence}
        await self._connection.api(f"CONSUMER.RESET.{self._reader.consumer}", request)
        self._reader.next_number = 1

    async def _require_owner(self) -> None:
        """Raise `EntryTaken` if another receiver has claimed the partition.

        It has reset the consumer first, and our requests took what it was to get; our reset would
        have the consumer go on behind these messages.
        """
        found = await read_newest(self._connection, self._assignment.partition)
        if found and found.epoch > self._assignment.epoch:
            raise EntryTaken(found)

    async def _start_over(self) -> None:
        await self._open_consumer()
        await self._reset()
        self._is_checked = True

    # messages

    async def _fetch(self) -> None:
        """Pull what waits; if nothing does, follow what comes, or end the arrivals."""
        try:
            is_cut = await self._fetch_once()
        except OutOfOrder:
            # somebody else used or changed the consumer, or an earlier pull was still answered
            await self._start_over()
            is_cut = await self._fetch_once()
        self._is_checked = False
        if is_cut:
            await self._start_over()
            self._was_cut = True
        elif not (self._pending or self.waits):
            self.arrivals.end()

    async def _fetch_once(self) -> bool:
        """Fetch once; return whether a message has cut the pull."""
        if self._was_cut:
            self._was_cut = False
            if found := await self._pull_behind_cut():
                self._accept(found)
                return False
        if not self.waits or self._pending:
            return await self._pull(0.0)
        # In another account the broker goes on delivering to a request that we have given up; so
        # there a request that waits ends with the first messages.
        return await (self._pull(_FOLLOW) if self._connection.user_token else self._follow())

    async def _follow(self) -> bool:
        limits = PullLimits(_PULL_MESSAGES, self._size.now)
        status = await self._reader.follow(limits, _FOLLOW, self._accept_one)
        pulled = Pulled([], status)
        if pulled.is_too_large and self.arrivals.is_empty:
            # the next message is larger than the limit, and would never come
            pulled = await self._reader.pull(1, _LARGEST)
            self._accept(pulled.messages)
        return pulled.is_cut

    async def _pull(self, wait: float) -> bool:
        """Pull what waits; if nothing does, what comes first within `wait` seconds.

        Raises `OutOfOrder` if nothing comes of the messages that the consumer had left: after a
        reset, a pull that was given up may have taken them, or the stream has them no longer. The
        session no longer waits for them.
        """
        began = time.monotonic()
        pulled = await self._reader.pull(_PULL_MESSAGES, self._size.now, wait)
        if not pulled.messages and pulled.is_too_large:
            pulled = await self._reader.pull(1, _LARGEST)
        if pulled.messages:
            took = time.monotonic() - began
            if took < _QUICK or not wait:  # otherwise the time says nothing about the line
                self._size.adapt(bytes_of(pulled.messages), took)
        elif self._pending:
            self._pending = 0
            self.arrivals.awake()
            raise OutOfOrder("nothing came of the messages that the consumer had left")
        self._accept(pulled.messages)
        return pulled.is_cut

    async def _pull_behind_cut(self) -> Messages:
        """Pull the messages behind one that has cut a pull, by one request each, sent at once.

        If the first message is too large for its request, the next time asks for fewer and larger
        ones.
        """
        size = self._size.now
        self._single_bytes = min(max(self._single_bytes, size // _SINGLE), size)
        count = size // self._single_bytes
        consumer, limit = self._reader.consumer, self._single_bytes
        messages = await pull_singly(self._connection, consumer, count, limit)
        if not messages:
            self._single_bytes *= 4
        elif len(messages) == count and 4 * max(map(_size_of, messages)) <= self._single_bytes:
            self._single_bytes //= 4
        return messages

    def _accept_one(self, delivered: Delivered) -> None:
        self._accept((delivered,))

    def _accept(self, messages: Sequence[Delivered]) -> None:
        """Hand over messages; raises `OutOfOrder` unless they are the next ones, with payloads.

        A publisher may write the header of a message without payload. So the consumer is checked,
        and the message pulled again.
        """
        if not self._is_checked and any(not m.data and m.size for _, m in messages):
            raise OutOfOrder("a message came without its payload")
        self._reader.verify(messages)
        if messages:
            self._pending = messages[-1][0].pending
            self.arrivals.add(messages)


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


def bytes_of(messages: Messages) -> int:
    """Count as the broker does: many small messages, or large headers, fill a batch, too."""
    return sum(map(_size_of, messages))


def _size_of(delivered: Delivered) -> int:
    return sum(map(len, delivered[1]))


def consumer_config(partition: int) -> dict[str, Any]:
    """Return the configuration of a partition's durable pull consumer.

    Its ack floor is the committed offset. A delivery is repeated only by a reset, hence the long
    `ack_wait`. Its state is in memory, since a file would be synced for each few messages (2.15.1):
    half of the broker's work for a fleet. If it is gone, the next session creates it again.
    """
    return {
        "durable_name": consumer_name(partition),
        "deliver_policy": "all",
        "ack_policy": "all",
        "ack_wait": 86_400 * SECOND,  # a day, in nanoseconds
        "max_ack_pending": -1,
        "mem_storage": True,
        "filter_subject": partition_filter(partition),
        "replay_policy": "instant",
    }
