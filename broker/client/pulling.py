"""One pull from a consumer: the request, the messages that the broker delivers for it, and the status by which it says that this was all.

Every pull has an inbox of its own, so that what comes late of one is not taken for what the next one brings.

A message without headers and payload ends a pull of whoever is in another account than the stream: nats-server (2.15.1) takes
it as the last answer. What it had to deliver behind it never arrives.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from broker.client.answer import ConnectionLost
from broker.client.connection import Connection
from broker.wire.delivery import Delivery, RawMessage, parse

BEAT = 2
"""Seconds between the signs of life that are asked for of a pull that waits; two without one, and its server has died."""

_LONGEST = 600.0  # seconds for a pull to end, however slow the line is
_UNSUBSCRIBE = 2.0  # seconds
_ALIVE = "100"
_ENDS = ("404", "408", "409 Batch Completed", "409 Message Size Exceeds MaxBytes")
_NANOSECONDS = 1_000_000_000

Delivered = list[tuple[Delivery, RawMessage]]
"""What one pull has brought, in the order in which the broker delivered it."""


def waiting(seconds: int) -> dict[str, int]:
    """Return what a request says that waits so long for its first message."""
    return {"expires": seconds * _NANOSECONDS, "idle_heartbeat": BEAT * _NANOSECONDS}


async def pull(
    connection: Connection, stream: str, consumer: str, request: Mapping[str, Any], silence: float
) -> Delivered:
    """Return what a pull for `batch` messages at most brings, nothing where nothing is there.

    Raises `ConnectionLost` after `silence` seconds in which nothing comes, and for a pull that the broker ends before its time;
    `Denied` without the right to pull.
    """
    await connection.client()
    subject = connection.api_subject(f"CONSUMER.MSG.NEXT.{stream}.{consumer}")
    under_way = _Pull(connection.new_inbox(), request["batch"], is_outside=bool(connection.own))
    subscription = await connection.tap(under_way.inbox, under_way.take)
    try:
        await connection.publish(subject, json.dumps(request).encode(), reply=under_way.inbox)
        status = await connection.guard(under_way.end(silence), _LONGEST, subject)
    finally:
        with suppress(ConnectionLost):  # gone with its client
            await connection.guard(subscription.unsubscribe(), _UNSUBSCRIBE)
    if not status.startswith(_ENDS):
        raise ConnectionLost(f"the broker ended a pull with {status}")
    return under_way.found


def is_empty(message: RawMessage) -> bool:
    """Whether a message has neither headers nor payload."""
    return not (message.head or message.data)


class _Pull:
    """What has come of a pull so far."""

    def __init__(self, inbox: str, most: int, *, is_outside: bool) -> None:
        self.inbox, self._most, self._is_outside = inbox, most, is_outside
        self.found = Delivered()
        self._beats = 0
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self, message: RawMessage) -> None:
        """Take a message; one of a client has a reply, the broker's own word the inbox for its subject."""
        if self._ended.done():
            return
        if delivery := parse(message.reply):
            self.found.append((delivery, message))
            is_cut = self._is_outside and is_empty(message)
            if is_cut or len(self.found) == self._most:
                self._ended.set_result(_ENDS[0])
        elif message.subject == self.inbox:
            headers = message.headers or {}
            self._beats += 1
            if headers.get("Status") != _ALIVE:
                status = f"{headers.get('Status', '')} {headers.get('Description', '')}"
                self._ended.set_result(status)

    async def end(self, silence: float) -> str:
        """Return the status that ends the pull, as long as something comes."""
        came = -1
        while not self._ended.done():
            if len(self.found) + self._beats == came:
                raise ConnectionLost(f"nothing came for {silence:g} s")
            came = len(self.found) + self._beats
            await asyncio.wait({self._ended}, timeout=silence)
        return self._ended.result()
