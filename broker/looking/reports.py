"""What each logbroker tells of itself and of its nats-server, where one runs: asked for by one request, answered by all."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from broker.app.untrusted import json_object
from broker.client.connection import Arrived, Connection, ConnectionLost
from broker.report import SUBJECT

__all__ = ["reports"]

_PATIENCE = 2.0  # seconds for the first answer
_MORE = 0.3  # seconds for each further one
_NOBODY = "503"


async def reports(connection: Connection, expected: int = 0) -> tuple[Mapping[str, Any], ...]:
    """Return the reports by the names of their servers, `expected` of them if that is known; none of a bare nats-server.

    Who may not ask gets none. Raises `ConnectionLost`.
    """
    found: list[Mapping[str, Any]] = []
    news = asyncio.Event()
    nobody = False

    def take(message: Arrived) -> None:
        nonlocal nobody
        if not message.data and (message.headers or {}).get("Status") == _NOBODY:
            nobody = True
        elif (report := json_object(message.data)) is not None:
            found.append(report)
        news.set()

    await connection.client()
    inbox = connection.new_inbox()
    subscription = await connection.tap(inbox, take)
    try:
        await connection.publish(SUBJECT, reply=inbox)
        while not nobody and (not expected or len(found) < expected):
            news.clear()
            async with asyncio.timeout(_MORE if found else _PATIENCE):
                await news.wait()
    except TimeoutError:
        pass  # whoever has not answered by now has no logbroker, or is stuck; the other checks tell which
    finally:
        with suppress(ConnectionLost):  # which would take the place of a cancellation
            await connection.guard(subscription.unsubscribe(), _PATIENCE)
    return tuple(sorted(found, key=lambda report: str(report.get("name", ""))))
