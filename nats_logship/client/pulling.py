"""One pull from a consumer: the request, the messages that the broker delivers for it, and the status by which it says that this was all.

Every pull has an inbox of its own, so that what comes late of one is not taken for what the next one brings. A pull that waits
asks for signs of life, as the server of its consumer may die.

A message without headers and payload ends a pull of whoever is in another account than the stream:
nats-server (2.15.1) takes it as the last answer. What it had to deliver behind it never arrives.
Many such messages are pulled by one request each.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import NamedTuple

from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import Delivery, RawMessage, parse_reply

_BEAT = 2  # seconds between the signs of life of a pull that waits; the broker takes none longer than half of the time
_PATIENCE = 10.0  # seconds without a message of one that does not: those are there already, or it ends at once
_LONGEST = 600.0  # seconds for a pull to end, however slow the line is
_ALIVE, _FULL, _CUT = "100", "full", "cut"  # the broker's own word, and ours
_TOO_LARGE = "409 Message Size Exceeds MaxBytes"
_UNSPENT = "Nats-Pending-Messages"  # how many messages of the request were not delivered
_COMPLETED = "409 Batch Completed"
_ENDS = ("404", "408", _COMPLETED, _TOO_LARGE, _FULL, _CUT)


class Pulled(NamedTuple):
    """What one pull has brought, in the order in which the broker delivered it, and what ended it."""

    messages: list[tuple[Delivery, RawMessage]]
    status: str

    @property
    def is_too_large(self) -> bool:
        """Whether the next message does not fit into `most_bytes`."""
        return self.status == _TOO_LARGE

    @property
    def is_cut(self) -> bool:
        """Whether the consumer has gone on behind these messages, though nothing more arrives."""
        return self.status == _CUT


async def pull(
    connection: Connection, consumer: str, most: int, most_bytes: int = 0, wait: float = 0.0
) -> Pulled:
    """Return at most `most` messages of a consumer (`<stream>.<name>`); where none is there, what comes within `wait` seconds.

    Raises `ConnectionLost` where neither messages nor signs of life come, and for a pull that the broker ends before its time;
    `Denied` without the right to pull.
    """
    client = await connection.client()
    request: dict[str, int | bool] = {"batch": most, "no_wait": True}
    if most_bytes:
        request["max_bytes"] = most_bytes
    if wait:
        request["expires"] = int(wait * SECOND)
    silence = wait + _PATIENCE
    if wait >= 2 * _BEAT:
        request["idle_heartbeat"], silence = _BEAT * SECOND, 2 * _BEAT
    subject = connection.api_subject(f"CONSUMER.MSG.NEXT.{consumer}")
    under_way = _Pull(most, is_outside=bool(connection.user_token))
    async with connection.open_inbox(under_way.take) as inbox:
        under_way.inbox = inbox
        await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
        status = await connection.guard(under_way.end(silence, client), _LONGEST, subject)
    if not status.startswith(_ENDS):
        raise ConnectionLost(f"the broker ended a pull with {status}")
    return Pulled(under_way.found, status)


async def pull_singly(
    connection: Connection, consumer: str, most: int, most_bytes: int
) -> list[tuple[Delivery, RawMessage]]:
    """Return at most `most` messages that are there, by as many requests sent at once.

    It stops before a message of more than `most_bytes`. Raises as `pull`.
    """
    client = await connection.client()
    request = json.dumps({"batch": 1, "no_wait": True, "max_bytes": most_bytes}).encode()
    subject = connection.api_subject(f"CONSUMER.MSG.NEXT.{consumer}")
    under_way = _Pull(most, most)
    async with connection.open_inbox(under_way.take) as inbox:
        under_way.inbox = inbox
        for _ in range(most):
            await connection.publish(subject, request, reply=inbox)
        await connection.guard(under_way.end(_PATIENCE, client), _LONGEST, subject)
    return under_way.found


class _Pull:
    """What has come so far of a pull by so many `requests`, each of which the broker ends."""

    def __init__(self, most: int, requests: int = 1, *, is_outside: bool = False) -> None:
        self.inbox, self._most, self._is_outside = "", most, is_outside
        self.found: list[tuple[Delivery, RawMessage]] = []
        self._beats, self._refused, self._requests = 0, 0, requests
        self._due, self._status = 0, ""  # of a status that has overtaken messages
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self, message: RawMessage) -> None:
        """Take a message; one of a client has a reply, the broker's own word the inbox for its subject."""
        if self._ended.done():
            return
        if delivery := parse_reply(message.reply):
            self.found.append((delivery, message))
            if self._is_outside and not message.head and not message.data:
                self._ended.set_result(_CUT)
            elif self._refused + len(self.found) == self._most:
                self._ended.set_result(_FULL)
            elif self._status and len(self.found) == self._due:
                self._ended.set_result(self._status)
        elif message.subject == self.inbox:
            self._beats += 1
            headers = message.headers or {}
            if headers.get("Status") != _ALIVE:
                self._take_status(headers)

    def _take_status(self, headers: Mapping[str, str]) -> None:
        """End with a status, or note it: in a cluster it may come before the messages it counts."""
        status = f"{headers.get('Status', '')} {headers.get('Description', '')}"
        if self._requests > 1:
            # the broker says so beside the message of a request that has a limit of bytes
            self._refused += not status.startswith(_COMPLETED)
            if self._refused and self._refused + len(self.found) >= self._requests:
                self._ended.set_result(status)
            return
        unspent = headers.get(_UNSPENT, "")
        due = self._most - int(unspent) if unspent.isdecimal() else 0
        if len(self.found) >= due:
            self._ended.set_result(status)
        else:
            self._due, self._status = due, status

    async def end(self, silence: float, client: BrokerClient) -> str:
        """Return the status that ends the pull, however slow the line, while something comes.

        That is a message of the pull, a sign of life, or more of a large message before that.
        """
        came, incoming = -1, 0
        while not self._ended.done():
            if len(self.found) + self._beats == came and client.incoming <= incoming:
                raise ConnectionLost(f"nothing came for {silence:g} s")
            came, incoming = len(self.found) + self._beats, client.incoming
            await asyncio.wait({self._ended}, timeout=silence)
        return self._ended.result()
