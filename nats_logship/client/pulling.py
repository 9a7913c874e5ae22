"""One pull from a consumer: the request, its messages, and the status that ends it.

`pull` returns what the consumer has, or else the first messages that come. `follow` hands over
messages as they come, for many seconds: one request serves a consumer with a few messages a second.

Each pull has an inbox of its own, so that late messages of one pull are not taken for messages of
the next. A pull that waits asks for heartbeats, since the server of its consumer may die: often in
a cluster, where our own server may live on.

For a client in another account than the stream, nats-server (2.15.1) takes a message without
headers and payload as the last answer: the pull is cut, and the messages behind it never arrive.
`pull_singly` reads many such messages, by one request each.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import Delivery, RawMessage, parse_reply

_HEARTBEAT, _ALONE = 2, 10  # seconds, in a cluster or not; at most half of the pull's wait
_PATIENCE = 10.0  # seconds without a message of a pull that does not wait
_LONGEST = 600.0  # seconds for a pull to end, however slow the line is
_ALIVE = "100"  # the status of a heartbeat
_FULL, _CUT = "full", "cut"  # our own statuses
_TOO_LARGE = "409 Message Size Exceeds MaxBytes"
_UNSPENT = "Nats-Pending-Messages"  # how many messages of the request were not delivered
_COMPLETED = "409 Batch Completed"
_ENDS = ("404", "408", _COMPLETED, _TOO_LARGE, _FULL, _CUT)

Delivered = tuple[Delivery, RawMessage]
Deliver = Callable[[Delivered], None]
"""Takes a message at once; a `ConnectionLost` that it raises ends the pull."""


class Pulled(NamedTuple):
    """The messages of one pull, in the order of their delivery, and the status that ended it."""

    messages: list[Delivered]
    status: str

    @property
    def is_too_large(self) -> bool:
        """Whether the next message does not fit into `most_bytes`."""
        return self.status == _TOO_LARGE

    @property
    def is_cut(self) -> bool:
        """Whether the consumer has gone on behind these messages, though nothing more arrives."""
        return self.status == _CUT


class PullLimits(NamedTuple):
    """After how many messages or bytes `follow` ends."""

    messages: int
    bytes: int


async def pull(
    connection: Connection, consumer: str, most: int, most_bytes: int = 0, wait: float = 0.0
) -> Pulled:
    """Return at most `most` messages of a consumer (`<stream>.<name>`).

    If there are none, return those that come within `wait` seconds. Raises `ConnectionLost` if
    neither messages nor heartbeats come, or if the broker ends the pull early; `Denied` without the
    right to pull.
    """
    request: dict[str, int | bool] = {"batch": most, "no_wait": True}
    if most_bytes:
        request["max_bytes"] = most_bytes
    found: list[Delivered] = []
    status = await _pull(connection, consumer, request, wait, found.append)
    return Pulled(found, status)


async def follow(
    connection: Connection, consumer: str, limits: PullLimits, wait: float, deliver: Deliver
) -> str:
    """Hand the messages of a consumer to `deliver`: those that it has, and those that come.

    Ends after `wait` seconds, or with `limits`; returns the status that ends it. Raises as `pull`,
    and what `deliver` raises.
    """
    request: dict[str, int | bool] = {"batch": limits.messages, "max_bytes": limits.bytes}
    return await _pull(connection, consumer, request, wait, deliver)


async def _pull(
    connection: Connection,
    consumer: str,
    request: dict[str, int | bool],
    wait: float,
    deliver: Deliver,
) -> str:
    client = await connection.client()
    if wait:
        request["expires"] = int(wait * SECOND)
    silence = wait + _PATIENCE
    heartbeat = _HEARTBEAT if client.is_clustered else _ALONE
    if wait >= 2 * heartbeat:
        request["idle_heartbeat"], silence = heartbeat * SECOND, 2 * heartbeat
    subject = connection.api_subject(f"CONSUMER.MSG.NEXT.{consumer}")
    under_way = _Pull(request["batch"], deliver, is_outside=bool(connection.user_token))
    async with connection.open_inbox(under_way.take) as inbox:
        under_way.inbox = inbox
        await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
        status = await connection.guard(under_way.wait(silence, client), _LONGEST, subject)
    if not status.startswith(_ENDS):
        raise ConnectionLost(f"the broker ended a pull with {status}")
    return status


async def pull_singly(
    connection: Connection, consumer: str, most: int, most_bytes: int
) -> list[Delivered]:
    """Return at most `most` waiting messages, by as many requests sent at once.

    It stops before a message of more than `most_bytes`. Raises as `pull`.
    """
    client = await connection.client()
    request = json.dumps({"batch": 1, "no_wait": True, "max_bytes": most_bytes}).encode()
    subject = connection.api_subject(f"CONSUMER.MSG.NEXT.{consumer}")
    found: list[Delivered] = []
    under_way = _Pull(most, found.append, most)
    async with connection.open_inbox(under_way.take) as inbox:
        under_way.inbox = inbox
        for _ in range(most):
            await connection.publish(subject, request, reply=inbox)
        await connection.guard(under_way.wait(_PATIENCE, client), _LONGEST, subject)
    return found


class _Pull:
    """The progress of a pull by `requests`, each of which the broker ends."""

    def __init__(
        self, most: int, deliver: Deliver, requests: int = 1, *, is_outside: bool = False
    ) -> None:
        self.inbox, self._most, self._is_outside = "", most, is_outside
        self._deliver, self._count = deliver, 0
        self._heartbeats, self._refused, self._requests = 0, 0, requests
        self._due, self._status = 0, ""  # of a status that has overtaken messages
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self, message: RawMessage) -> None:
        """Take a message, which has a reply, or a status, whose subject is the inbox."""
        if self._ended.done():
            return
        if delivery := parse_reply(message.reply):
            self._take_delivery(delivery, message)
        elif message.subject == self.inbox:
            self._heartbeats += 1
            headers = message.headers or {}
            if headers.get("Status") != _ALIVE:
                self._take_status(headers)

    def _take_delivery(self, delivery: Delivery, message: RawMessage) -> None:
        try:
            self._deliver((delivery, message))
        except ConnectionLost as error:
            self._ended.set_exception(error)
            return
        self._count += 1
        if self._is_outside and not message.head and not message.data:
            self._ended.set_result(_CUT)
        elif self._refused + self._count == self._most:
            self._ended.set_result(_FULL)
        elif self._status and self._count == self._due:
            self._ended.set_result(self._status)

    def _take_status(self, headers: Mapping[str, str]) -> None:
        """End with a status, or note it: in a cluster it may overtake the messages it counts."""
        status = f"{headers.get('Status', '')} {headers.get('Description', '')}"
        if self._requests > 1:
            # with a limit of bytes this status also comes beside the message of a request
            self._refused += not status.startswith(_COMPLETED)
            if self._refused and self._refused + self._count >= self._requests:
                self._ended.set_result(status)
            return
        unspent = headers.get(_UNSPENT, "")
        due = self._most - int(unspent) if unspent.isdecimal() else 0
        if self._count >= due:
            self._ended.set_result(status)
        else:
            self._due, self._status = due, status

    async def wait(self, silence: float, client: BrokerClient) -> str:
        """Return the status that ends the pull; raises `ConnectionLost` after `silence` seconds.

        Messages, heartbeats and parts of a large message break the silence, however slow the line.
        """
        before, incoming = -1, 0
        while not self._ended.done():
            received = self._count + self._heartbeats
            if received == before and client.incoming <= incoming:
                raise ConnectionLost(f"nothing came for {silence:g} s")
            before, incoming = received, client.incoming
            await asyncio.wait({self._ended}, timeout=silence)
        return self._ended.result()
