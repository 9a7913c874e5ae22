"""`logbroker events`: events that NATS servers and JetStream publish, as they happen.

Events are not stored: those that happen while nobody listens are not shown.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from broker.inspect.message import json_object
from broker.inspect.servers import collect_holders
from nats_logship.app.text import printable
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage

NOISE = frozenset({"api_audit", "account_connections", "statsz"})
"""Frequent kinds of little use, not shown by default: API calls, and statistics."""
_SUBJECTS = ("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", "$SYS.ACCOUNT.>", "$SYS.SERVER.>")
_ENVELOPE = frozenset({"type", "id", "timestamp", "server", "client", "domain", "schema"})
_CLIENT = ("name", "user", "acc", "host")
_MOST_SHOWN = 300  # characters of an event
_FOREVER = 1e9  # seconds
_MOST_WAITING = 100_000  # events
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """An event; `time` is the server's (RFC 3339), `text` one line, `event` the whole message."""

    kind: str
    time: str
    server: str
    text: str
    subject: str
    event: Mapping[str, Any]


def read_event(
    subject: str, payload: bytes, now: str, names: Mapping[str, str] = MappingProxyType({})
) -> BrokerEvent:
    """Return the event of a message; `now` is the time of its arrival, used if it has none.

    `names` has the holders of credentials by public key.
    """
    data = json_object(payload) or {"payload": payload.decode("utf-8", "replace")}
    client, server = (
        found if isinstance(found := data.get(key), Mapping) else {} for key in ("client", "server")
    )
    kind = str(data.get("type") or subject.lower()).rpartition(".")[2]
    # a refusal has the type of a disconnect
    is_refusal = subject.endswith(".CLIENT.AUTH.ERR")
    shown = dict(client)
    if name := names.get(str(client.get("user"))):  # a refused client did not prove its key
        shown["user"] = f"by its key {name}" if is_refusal else name
    who = " ".join(str(shown[key]) for key in _CLIENT if shown.get(key))
    rest = [f"{k}={_flatten(v)}" for k, v in data.items() if k not in _ENVELOPE and v]
    text = ", ".join(filter(None, [who, *rest])) or str(server.get("name", ""))
    return BrokerEvent(
        kind="auth_error" if is_refusal else kind,
        time=str(data.get("timestamp") or server.get("time") or now),
        server=str(server.get("name") or ""),
        text=printable(text[:_MOST_SHOWN]),
        subject=subject,
        event=data,
    )


def _flatten(value: object) -> str:
    inner = value.items() if isinstance(value, Mapping) else ()
    return " ".join(f"{key}:{one}" for key, one in inner) or str(value)


async def listen(connection: Connection) -> AsyncGenerator[BrokerEvent, None]:
    """Yield events for ever, again after a lost connection.

    They have the names of the credentials that existed when the connection was made.
    """
    waiting: asyncio.Queue[RawMessage] = asyncio.Queue(_MOST_WAITING)
    dropped = 0

    def take(message: RawMessage) -> None:
        nonlocal dropped
        if waiting.full():
            dropped += 1
        else:
            waiting.put_nowait(message)

    while True:
        await connection.client()
        with suppress(ConnectionLost):
            for subject in _SUBJECTS:
                await connection.tap(subject, take)
            names = await collect_holders(connection)
            while True:
                message = await connection.guard(waiting.get(), _FOREVER)
                if dropped:
                    logger.warning("%d events are not shown: the reader is too slow", dropped)
                    dropped = 0
                now = datetime.now(UTC).isoformat()  # noqa: TID251 - the shell's clock
                yield read_event(message.subject, message.data, now, names)
        logger.warning("the connection was lost: events until it is back are not shown")
