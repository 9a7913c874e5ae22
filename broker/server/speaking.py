"""Listens to those who ask logbroker over NATS, for as long as it runs. Knows nothing of what it says."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from broker.client.connection import Connection, ConnectionLost, Message
from broker.report import SUBJECT

__all__ = ["Listening", "speaking"]

_AWAY = 0.5  # seconds until it listens again
_LONGEST = 3600  # seconds; a client that hears nothing is lost long before
_WAITING = 64 * 1024**2  # bytes of messages that may wait


class Listening:
    """Listens on a subject; in a `queue`, one of all who do hears each message."""

    def __init__(
        self,
        connection: Connection,
        subject: str,
        handle: Callable[[Message], Awaitable[None]],
        queue: str = "",
        waiting: int = _WAITING,
    ) -> None:
        """Remember who takes what is heard, of which `waiting` bytes may wait."""
        self._connection = connection
        self._subject = subject
        self._handle = handle
        self._queue = queue
        self._waiting = waiting
        self.listens = asyncio.Event()
        """Set from when it hears for the first time."""

    async def run(self) -> None:
        """Listen until cancelled; a connection that is lost is made again."""
        while True:
            client = await self._connection.client()
            with suppress(ConnectionLost):
                await self._connection.subscribe(
                    self._subject, self._take, self._waiting, self._queue
                )
                await self._connection.guard(client.flush(_LONGEST), _LONGEST)
                self.listens.set()
                await asyncio.wait([client.lost])
            await asyncio.sleep(_AWAY)

    async def _take(self, message: Message) -> None:
        with suppress(ConnectionLost):
            await self._handle(message)


def speaking(
    connection: Connection, report: Callable[[], Awaitable[Mapping[str, Any]]]
) -> Listening:
    """Return what answers whoever asks logbroker how it is."""

    async def answer(message: Message) -> None:
        if message.reply:
            await connection.publish(message.reply, json.dumps(await report()).encode())

    return Listening(connection, SUBJECT, answer)
