"""Waits until a partition has something to receive, by a pull that the broker answers when there is; never by polling.

The pull is on a throw-away consumer that delivers headers only, so that the durable one is the tasks' alone.
"""

import asyncio
import json
from typing import Any

from broker.connection import Connection, ConnectionLost, Message, Rejected
from broker.subjects import partition_filter
from broker.topology import STREAM

__all__ = ["Wake"]

_EXPIRES = 30  # seconds that a pull waits at the broker before it is asked again
_LIVES = 120  # seconds for which the broker keeps the consumer without a pull
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
        if await self.pending(sequence):
            return
        rang: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def ring(message: Message) -> None:
            if message.reply and not rang.done():
                rang.set_result(None)

        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, ring)
        try:
            while not rang.done():
                await self._pull(inbox, rang)
        finally:
            await subscription.unsubscribe()

    async def _pull(self, inbox: str, rang: "asyncio.Future[None]") -> None:
        request: dict[str, Any] = {"batch": 1, "expires": _EXPIRES * _NANOSECONDS}
        await self._connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{self._name}",
            json.dumps(request).encode(),
            reply=inbox,
        )
        try:
            await self._connection.guard(_shielded(rang), _EXPIRES)
        except ConnectionLost:
            if not await self._is_alive():
                raise

    async def _is_alive(self) -> bool:
        try:
            await self._connection.api(f"CONSUMER.INFO.{STREAM}.{self._name}")
        except Rejected:
            return False
        return True

    async def _forget(self) -> None:
        try:
            await self._connection.api(f"CONSUMER.DELETE.{STREAM}.{self._name}")
        except Rejected as error:
            if error.error != _NO_CONSUMER:
                raise

    async def close(self) -> None:
        """Take the consumer away; a broker that is away does so by itself later."""
        try:
            await self._forget()
        except (ConnectionLost, Rejected):
            return


async def _shielded(future: "asyncio.Future[None]") -> None:
    await asyncio.shield(future)
