"""Waits until a partition has something to receive, by a pull that the broker answers when there is; never by polling.

The pull is on a throw-away consumer that delivers headers only, so that the durable one is the tasks' alone.
"""

import asyncio
import json
from contextlib import suppress

from broker.connecting.connection import Connection, ConnectionLost, Message, Rejected
from broker.subjects import partition_filter
from broker.topology import STREAM

__all__ = ["Wake"]

_EXPIRES = 30  # seconds that a pull waits at the broker before it is asked again
_LIVES = 120  # seconds for which the broker keeps the consumer without a pull
_PATIENCE = 5.0  # seconds
_AGAIN = 0.1  # seconds between pulls: one may be refused at once
_CLOSE_PATIENCE = 1.0  # seconds
_BEAT = 2  # seconds between signs of life, where the server of the consumer may die and another one take its place
_ALIVE = "100"
_NANOSECONDS = 1_000_000_000
_NO_CONSUMER = 10014


class Wake:
    """The bell of one partition."""

    def __init__(self, connection: Connection, partition: int, agent: str) -> None:
        """Ask nothing yet; `agent` tells the consumers of several receivers apart."""
        self._connection = connection
        self._filter = partition_filter(partition)
        self._name = f"wake-p{partition}-{agent}"

    async def pending(self, sequence: int) -> int:
        """Return how many messages of the partition there are from `sequence` on; raises `Rejected`, `ConnectionLost`."""
        config = {
            "name": self._name,
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": sequence,
            "filter_subject": self._filter,
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _LIVES * _NANOSECONDS,
        }
        await self._forget()
        answer = await self._connection.api(
            f"CONSUMER.CREATE.{STREAM}.{self._name}.{self._filter}",
            {"stream_name": STREAM, "config": config},
        )
        return int(answer["num_pending"])

    async def wait(self, sequence: int) -> None:
        """Return when the partition has a message at `sequence` or later; raises `Rejected`, `ConnectionLost`."""
        while not await self.pending(sequence):
            if await self._rings():
                return
            await asyncio.sleep(_AGAIN)

    async def _rings(self) -> bool:
        """Pull once; False when nothing has come in the time. Everything is made anew then, on whatever client there is."""
        said: asyncio.Queue[str] = asyncio.Queue()

        async def hear(message: Message) -> None:
            # what has no reply is a status
            said.put_nowait("" if message.reply else (message.headers or {}).get("Status", ""))

        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, hear)
        try:
            await self._connection.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{self._name}",
                json.dumps(self._request()).encode(),
                reply=inbox,
            )
            return await self._connection.guard(self._ring(said), _EXPIRES)
        except ConnectionLost:
            return False
        finally:
            with suppress(ConnectionLost):
                await self._connection.guard(subscription.unsubscribe(), _PATIENCE)

    def _request(self) -> dict[str, int]:
        request = {"batch": 1, "expires": _EXPIRES * _NANOSECONDS}
        if self._connection.has_choice:
            request["idle_heartbeat"] = _BEAT * _NANOSECONDS
        return request

    async def _ring(self, said: "asyncio.Queue[str]") -> bool:
        """Return True for a message, False when the pull has ended or its server gives no sign of life."""
        patience = 2 * _BEAT if self._connection.has_choice else _EXPIRES
        while True:
            try:
                async with asyncio.timeout(patience):
                    status = await said.get()
            except TimeoutError:
                return False
            if status != _ALIVE:
                return not status

    async def _forget(self) -> None:
        try:
            await self._connection.api(f"CONSUMER.DELETE.{STREAM}.{self._name}")
        except Rejected as error:
            if error.error != _NO_CONSUMER:
                raise

    async def close(self) -> None:
        """Take the consumer away; a broker that is away does so by itself later."""
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(_CLOSE_PATIENCE):
                await self._forget()
