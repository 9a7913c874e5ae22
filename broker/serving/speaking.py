"""Answers whoever asks logbroker how it is, over NATS, for as long as it runs. Knows nothing of what it says."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from broker.connecting.connection import Connection, ConnectionLost, Message
from broker.report import SUBJECT

__all__ = ["Speaking"]

_AWAY = 0.5  # seconds until it listens again
_LONGEST = 3600  # seconds; a client that hears nothing is lost long before


class Speaking:
    """Listens on the subject of reports."""

    def __init__(
        self, connection: Connection, report: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> None:
        """Remember whom to ask."""
        self._connection = connection
        self._report = report
        self.listens = asyncio.Event()
        """Set from when it is heard for the first time."""

    async def run(self) -> None:
        """Answer until cancelled; a connection that is lost is made again."""
        while True:
            client = await self._connection.client()
            with suppress(ConnectionLost):
                await self._connection.subscribe(SUBJECT, self._answer)
                await self._connection.guard(client.flush(_LONGEST), _LONGEST)
                self.listens.set()
                await asyncio.wait([client.lost])
            await asyncio.sleep(_AWAY)

    async def _answer(self, message: Message) -> None:
        if message.reply:
            with suppress(ConnectionLost):
                await self._connection.publish(
                    message.reply, json.dumps(await self._report()).encode()
                )
