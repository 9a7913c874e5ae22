"""The hosts that ship: how many messages the streams hold of each, and when the last one came. Changes nothing.

Known by the list of subjects and by the headers of the last message of each. For 100,000 hosts the list is 3.5 MB, and the
headers are 100,000 small messages.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from broker.client.config import current_pauses
from broker.client.connection import Connection
from broker.inspect.ask import streams_of, subjects_in
from broker.inspect.message import StoredMessage, nanoseconds, rfc3339
from broker.inspect.reader import LAST_PER_SUBJECT, MessageReader
from broker.inspect.status import short_duration
from broker.wire.pause import longest

__all__ = ["HEAD", "ORDERS", "HostStatus", "ask_hosts"]

HEAD = ("host", "part", "messages", "last seen", "silent", "last file")
_SECOND = 1e9


@dataclass(slots=True)
class HostStatus:
    """What the streams hold of a host; `last_seen` is in nanoseconds since the epoch.

    `agent` and `file` are those of the last message; empty for another client's, `file` also for a claim.
    `paused` says until when an operator has paused the host, by whom and why.
    """

    host: str
    partitions: tuple[int, ...] = ()
    messages: int = 0
    last_seen: int = 0
    silent_seconds: float = 0.0
    agent: str = ""
    file: str = ""
    paused: str | None = None

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"last_seen": rfc3339(self.last_seen)}

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table, as `HEAD` names them."""
        return (
            self.host,
            ",".join(f"p{number}" for number in self.partitions),
            str(self.messages),
            f"{rfc3339(self.last_seen)[:19]}Z",
            short_duration(self.silent_seconds) + (", paused" if self.paused else ""),
            self.file or ("(no lines since it started)" if self.agent else "-"),
        )


ORDERS: dict[str, Callable[[HostStatus], tuple[int, str]]] = {
    "name": lambda one: (0, one.host),
    "messages": lambda one: (-one.messages, one.host),
    "silent": lambda one: (one.last_seen, one.host),
}
"""How hosts may be sorted: by name, the largest number first, or the longest silence first."""


async def ask_hosts(connection: Connection) -> list[HostStatus]:
    """Return the hosts by name; raises `Rejected` or `ConnectionLost`."""
    streams = await streams_of(connection)
    subjects, pauses = await asyncio.gather(
        subjects_in(connection, streams), current_pauses(connection)
    )
    found: dict[str, HostStatus] = {}
    now = 0
    for stream in streams:
        for last in (await _last_messages(connection, stream)).values():
            _add(found, last, subjects.get(last.name, 0))
        now = nanoseconds((await connection.api(f"STREAM.INFO.{stream}"))["ts"])
    moment = datetime.fromtimestamp(now / _SECOND, UTC)
    for host in found.values():
        host.silent_seconds = round(max(0.0, (now - host.last_seen) / _SECOND), 3)
        if pause := longest(pauses, host.host, moment):
            host.paused = str(pause)
    return [found[name] for name in sorted(found)]


async def _last_messages(connection: Connection, stream: str) -> dict[str, StoredMessage]:
    """Return the last message of each subject.

    The end is asked for behind the beginning: whoever sends meanwhile has a last message that no earlier end would include.
    """
    reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
    found: dict[str, StoredMessage] = {}
    try:
        some = await reader.read_until(sys.maxsize)
        end = (await connection.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
        while some:
            found |= {one.name: one for one in some}
            some = await reader.read_until(end)
    finally:
        await reader.close()
    return found


def _add(found: dict[str, HostStatus], last: StoredMessage, messages: int) -> None:
    """Take note of the last message of a subject, which has so many messages."""
    if last.subject is None:
        return  # `status` shows messages of no host
    host = found.setdefault(last.host, HostStatus(last.host))
    host.partitions = tuple(sorted({*host.partitions, last.subject.partition}))
    host.messages += messages
    if last.stored_at >= host.last_seen:
        host.last_seen = last.stored_at
        host.agent = "" if last.trouble else last.agent
        host.file = "" if last.trouble or not last.sections else last.sections[-1].path
