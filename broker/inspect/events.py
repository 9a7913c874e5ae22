"""`logbroker events`: what NATS servers and JetStream report as it happens. Nothing is kept: what happens while nobody listens is not shown."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.app.untrusted import json_object, printable
from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected

__all__ = ["NOISE", "Event", "listen", "read_event"]

NOISE = frozenset({"api_audit", "account_connections", "statsz"})
"""Kinds that come all the time and say little: each call of the API, and statistics."""
_SUBJECTS = ("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", "$SYS.ACCOUNT.>", "$SYS.SERVER.>")
_ENVELOPE = frozenset({"type", "id", "timestamp", "server", "client", "domain", "schema"})
_CLIENT = ("name", "user", "acc", "host")
_MOST_SHOWN = 300  # letters of an event
_LOOK_EVERY = 5.0  # seconds
_MOST_WAITING = 100_000  # events
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `time` is the server's (RFC 3339), `text` one line, `event` all that was reported."""

    kind: str
    time: str
    server: str
    text: str
    subject: str
    event: Mapping[str, Any]


def read_event(subject: str, payload: bytes, now: str) -> Event:
    """Return the event of a message; `now` is when it came, for one that has no time of its own."""
    data = json_object(payload)
    if data is None:
        data = {"payload": payload.decode("utf-8", "replace")} if payload else {}
    server = _part(data, "server")
    if subject.endswith(".CLIENT.AUTH.ERR"):
        kind = "auth_error"  # of the same type as a disconnect
    else:
        kind = str(data.get("type") or subject.lower()).rpartition(".")[2]
    return Event(
        kind=kind,
        time=str(data.get("timestamp") or server.get("time") or now),
        server=str(server.get("name") or ""),
        text=printable(_describe(data)[:_MOST_SHOWN]),
        subject=subject,
        event=data,
    )


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _describe(data: Mapping[str, Any]) -> str:
    """Return whom an event is about, and what else it says, field by field."""
    client = _part(data, "client")
    parts = [" ".join(str(client[key]) for key in _CLIENT if client.get(key))]
    for key, value in data.items():
        if key not in _ENVELOPE and value not in (None, "", 0, False):
            inner = value.items() if isinstance(value, Mapping) else ()
            parts.append(f"{key}={' '.join(f'{k}:{v}' for k, v in inner) or value}")
    return ", ".join(filter(None, parts)) or str(_part(data, "server").get("name", ""))


async def listen(connection: Connection) -> AsyncGenerator[Event, None]:
    """Yield events for ever; logs once what this user cannot hear. A broker that goes away is waited for."""
    try:
        await connection.request("$SYS.REQ.SERVER.PING.IDZ", patience=2.0)
    except Rejected:
        logger.warning(
            "no events of the server itself (clients, refusals, shutdowns): use the credential of an admin of a logbroker, "
            "or of a user of the system account"
        )
    except ConnectionLost:
        pass  # a server that is away now may tell it later
    waiting: asyncio.Queue[RawMessage] = asyncio.Queue(_MOST_WAITING)
    client: object = None
    while True:
        if (found := await connection.client()) is not client:
            if client is not None:
                logger.warning("the connection was lost: events of the meantime are not shown")
            client = found
            await _subscribe(connection, waiting)
        try:
            async with asyncio.timeout(_LOOK_EVERY):
                message = await waiting.get()
        except TimeoutError:
            continue  # the client may have been lost meanwhile
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 - the shell's clock
        yield read_event(message.subject, message.data, now)


async def _subscribe(connection: Connection, waiting: "asyncio.Queue[RawMessage]") -> None:
    def take(message: RawMessage) -> None:
        if not waiting.full():  # the output takes too long: the newest event is dropped
            waiting.put_nowait(message)

    try:
        for subject in _SUBJECTS:
            await connection.tap(subject, take)
    except ConnectionLost as error:
        logger.debug("subscribing again: %s", error)
