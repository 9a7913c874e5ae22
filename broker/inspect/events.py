"""`logbroker events`: what NATS servers and JetStream report as it happens. Nothing is kept: what happens while nobody listens is not shown."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from broker.app.untrusted import json_object, printable
from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected

__all__ = ["Event", "is_noise", "listen", "read_event"]

_SUBJECTS = ("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", "$SYS.ACCOUNT.>", "$SYS.SERVER.>")
_NOISE = frozenset({"api_audit", "account_connections", "statsz"})
_ENVELOPE = frozenset({"type", "id", "timestamp", "server", "client", "domain", "schema"})
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

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self)


def is_noise(event: Event) -> bool:
    """Whether an event comes all the time and says little: each call of the API, and statistics."""
    return event.kind in _NOISE


def read_event(subject: str, payload: bytes, now: str) -> Event:
    """Return the event of a message; `now` is when it came, for one that has no time of its own."""
    data = json_object(payload)
    if data is None:
        data = {"payload": payload.decode("utf-8", "replace")} if payload else {}
    server = _part(data, "server")
    return Event(
        kind=_kind(subject, data),
        time=_text(data.get("timestamp") or server.get("time") or now),
        server=_text(server.get("name") or data.get("server") or ""),
        text=printable(_describe(data)[:_MOST_SHOWN]),
        subject=subject,
        event=data,
    )


def _kind(subject: str, data: Mapping[str, Any]) -> str:
    if subject.endswith(".CLIENT.AUTH.ERR"):
        return "auth_error"  # of the same type as a disconnect
    if isinstance(kind := data.get("type"), str) and kind:
        return kind.rpartition(".")[2]
    return subject.rpartition(".")[2].lower()


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _describe(data: Mapping[str, Any]) -> str:
    """Return whom an event is about, and what else it says, field by field."""
    parts = [_client(client)] if (client := _part(data, "client")) else []
    for key, value in data.items():
        if key not in _ENVELOPE and value not in (None, "", 0, False):
            inner = value.items() if isinstance(value, Mapping) else ()
            parts.append(f"{key}={' '.join(f'{k}:{v}' for k, v in inner) or value}")
    if not parts:
        parts = [str(value) for key, value in _part(data, "server").items() if key == "name"]
    return ", ".join(parts)


def _client(client: Mapping[str, Any]) -> str:
    user = client.get("user") or client.get("nkey") or client.get("name_tag")
    parts = [
        str(client.get("name") or f"client {client.get('id', '?')}"),
        *([f"as {user}"] if user else []),
        *([f"of account {client['acc']}"] if client.get("acc") else []),
        *([f"from {client['host']}"] if client.get("host") else []),
    ]
    return " ".join(parts)


async def listen(connection: Connection) -> AsyncGenerator[Event, None]:
    """Yield events for ever; logs once what this user cannot hear. A broker that goes away is waited for."""
    await _log_what_is_missing(connection)
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


async def _log_what_is_missing(connection: Connection) -> None:
    if not await _is_heard(connection.request("$SYS.REQ.SERVER.PING.IDZ", patience=2.0)):
        logger.warning(
            "no events of the server itself (clients, refusals, shutdowns): use the credential of an admin of a logbroker, "
            "or of a user of the system account"
        )
    if not await _is_heard(connection.api("INFO", patience=2.0)):
        logger.warning("no advisories of JetStream: this user's account has none")


async def _is_heard(question: Awaitable[object]) -> bool:
    """Whether the question is allowed: a cluster without a leader does not answer, or says that it has none just now."""
    try:
        await question
    except Rejected as error:
        return error.is_leaderless and not error.is_nobody
    except ConnectionLost:
        return True
    return True
