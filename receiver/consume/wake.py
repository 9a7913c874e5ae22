"""Waits until a partition has something to receive, by a pull that the broker answers when there is; never by polling.

The pull is on a throw-away consumer that delivers headers only, so that the durable one is the tasks' alone.
"""

import asyncio
import json
from contextlib import suppress

from broker.client.answer import ConnectionLost, Rejected, is_level
from broker.client.connection import Connection, Message
from broker.wire.subjects import partition_filter, wake_name

_EXPIRES = 30  # seconds that a pull waits at the broker before it is asked again
_LIVES = 120  # seconds for which the broker keeps the consumer without a pull
_PATIENCE = 5.0  # seconds
_AGAIN = 0.1  # seconds between pulls: one may be refused at once
_CLOSE_PATIENCE = 1.0  # seconds
_SHORT = 0.7  # seconds for what may never be answered
_BEAT = 2  # seconds between signs of life, where the server of the consumer may die and another one take its place
_ALIVE = "100"
_NANOSECONDS = 1_000_000_000
_NO_CONSUMER = 10014


class Wake:
    """The bell of one partition, as its owner in one epoch hears it."""

    def __init__(self, connection: Connection, partition: int, stream: str, epoch: int = 0) -> None:
        """Ask nothing yet; `epoch` tells the consumers of several receivers apart, and may be set later."""
        self._connection = connection
        self._partition = partition
        self._stream = stream
        self.epoch = epoch

    @property
    def _name(self) -> str:
        return wake_name(self._partition, self.epoch)

    async def pending(self, sequence: int) -> int:
        """Return how many messages of the partition there are from `sequence` on; raises `Rejected`, `ConnectionLost`."""
        subjects = partition_filter(self._partition)
        config = {
            "name": self._name,
            "ack_policy": "none",
            "filter_subject": subjects,
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _LIVES * _NANOSECONDS,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(sequence, 1),
        }
        await self._forget()
        answer = await self._connection.api(
            f"CONSUMER.CREATE.{self._stream}.{self._name}.{subjects}",
            {"stream_name": self._stream, "config": config},
        )
        return int(answer["num_pending"])

    async def is_none_left(self, sequence: int) -> bool:
        """Whether the partition has nothing from `sequence` on for sure, whichever replica of the broker counts it.

        Raises as `pending`, and `ConnectionLost` while a replica lags.
        """
        info = await self._connection.api(f"STREAM.INFO.{self._stream}")
        if not is_level(info):
            raise ConnectionLost("a replica lags, and may not have all that there is")
        return not await self.pending(sequence)

    async def wait(self, sequence: int) -> None:
        """Return when the partition has a message at `sequence` or later; raises `Rejected`, `ConnectionLost`."""
        while not await self.pending(sequence):
            if await self._rings():
                return
            await asyncio.sleep(_AGAIN)

    async def _rings(self) -> bool:
        """Pull once; False when nothing has come in the time. Everything is made anew then, on whatever client there is."""
        connection, said = self._connection, asyncio.Queue[Message]()
        request = {"batch": 1, "expires": _EXPIRES * _NANOSECONDS}
        if connection.has_choice:
            request["idle_heartbeat"] = _BEAT * _NANOSECONDS
        inbox = connection.new_inbox()
        with suppress(ConnectionLost):
            subscription = await connection.subscribe(inbox, said.put)
            try:
                subject = connection.api_subject(f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}")
                await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
                return await connection.guard(self._ring(said), _EXPIRES)
            finally:
                with suppress(ConnectionLost):
                    await connection.guard(subscription.unsubscribe(), _PATIENCE)
        return False

    async def _ring(self, said: "asyncio.Queue[Message]") -> bool:
        """Return True for a message, False when the pull has ended or its server gives no sign of life."""
        patience = 2 * _BEAT if self._connection.has_choice else _EXPIRES
        with suppress(TimeoutError):
            while True:
                message = await asyncio.wait_for(said.get(), patience)
                if message.reply or (message.headers or {}).get("Status") != _ALIVE:
                    return bool(message.reply)
        return False

    async def _forget(self) -> None:
        is_one_of_many = self._connection.has_choice
        try:
            call = f"CONSUMER.DELETE.{self._stream}.{self._name}"
            await self._connection.api(call, patience=_SHORT if is_one_of_many else None)
        except Rejected as error:
            if error.error != _NO_CONSUMER:
                raise
        except ConnectionLost:
            # where its server has died it is taken away all the same, and nobody is left to say so
            if not is_one_of_many:
                raise

    async def close(self) -> None:
        """Take the consumer away; a broker that is away does so by itself later."""
        with suppress(ConnectionLost, Rejected, TimeoutError):
            await asyncio.wait_for(self._forget(), _CLOSE_PATIENCE)
