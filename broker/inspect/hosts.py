"""The hosts that ship: what the streams hold of each, and when its last message came. Changes nothing.

| known by | what |
|---|---|
| the list of subjects | messages |
| the last message of each subject | last seen, agent, file |
| the headers of all messages, read one by one | first seen, lines, bytes, files |

Of a message that a receiver would quarantine only the time is used; such messages are counted as `malformed`.
For 100,000 hosts the list of subjects is 3.5 MB, and the last headers of each are 100,000 small messages.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from broker.app.sizes import format_size
from broker.client.arrived import Arrived
from broker.client.connection import Connection
from broker.client.pauses import current_pauses
from broker.inspect.ask import streams_of, subjects_in
from broker.inspect.message import Headers, headers_of, nanoseconds, rfc3339, subject_of
from broker.inspect.reader import LAST_PER_SUBJECT, StreamReader, at_sequence
from broker.inspect.status_table import short_duration
from broker.wire.pause import longest

__all__ = [
    "COUNTED",
    "HEAD",
    "MOST_FILES",
    "HostStatus",
    "Hosts",
    "Order",
    "ask_hosts",
    "pause_notes",
    "rows",
    "sort_hosts",
]

COUNTED = 100_000
"""Lines and bytes are counted where the streams hold no more messages than that, unless all are asked for."""

MOST_FILES = 1000
"""The files of a host that are counted; a host may make up paths without end."""

HEAD = ("host", "part", "messages", "lines", "bytes", "first seen", "last seen", "silent", "files")
_FILES_NAMED = 20  # of a host
_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class HostStatus:
    """What the streams hold of a host; times are nanoseconds since the epoch.

    `bytes` are payloads as stored, compressed ones as such. What follows `lines` is None, or empty, where messages were
    not counted one by one. `files` are at most 20 paths of `file_count`, which is 1,001 where there are more than 1,000.
    `paused` says until when an operator has paused the host, by whom and why.
    """

    host: str
    partitions: tuple[int, ...]
    messages: int
    last_seen: int
    silent_seconds: float
    agent: str
    file: str
    lines: int | None
    bytes: int | None
    first_seen: int | None
    files: tuple[str, ...]
    file_count: int
    malformed: int
    paused: str | None = None

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        first = None if self.first_seen is None else rfc3339(self.first_seen)
        return asdict(self) | {"first_seen": first, "last_seen": rfc3339(self.last_seen)}


@dataclass(slots=True)
class _Count:
    partitions: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    messages: int = 0
    last_seen: int = 0
    last_valid: int = 0
    agent: str = ""
    file: str = ""
    lines: int = 0
    bytes: int = 0
    first_seen: int | None = None
    malformed: int = 0

    def add_last(self, stored_at: int, headers: Headers | None) -> None:
        self.last_seen = max(self.last_seen, stored_at)
        if headers is not None and stored_at >= self.last_valid:
            self.last_valid, self.agent = stored_at, headers.agent
            self.file = headers.files[-1] if headers.files else ""

    def add(self, stored_at: int, headers: Headers | None) -> None:
        if headers is None:
            self.malformed += 1
            return
        self.lines += headers.lines
        self.bytes += headers.size
        self.first_seen = min(stored_at, self.first_seen or stored_at)
        for file in headers.files:
            if len(self.files) <= MOST_FILES:
                self.files.add(file)


class Hosts:
    """Counts hosts; messages may come in any order."""

    def __init__(self) -> None:
        """Begin with no host."""
        self._counts: dict[str, _Count] = {}

    def hold(self, subject: str, messages: int) -> None:
        """Take note of how many messages there are on a subject."""
        if count := self._of(subject):
            count.messages += messages

    def last(self, stored_at: int, message: Arrived) -> None:
        """Take note of the last message of a subject."""
        if count := self._of(message.subject):
            count.add_last(stored_at, headers_of(message))

    def count(self, stored_at: int, message: Arrived) -> None:
        """Count one message."""
        if count := self._of(message.subject):
            headers = headers_of(message)
            count.add_last(stored_at, headers)
            count.add(stored_at, headers)

    def status(self, now: int, *, is_counted: bool) -> list[HostStatus]:
        """Return the hosts by name; `is_counted` says whether all messages were counted."""
        return [
            _status(host, count, now, is_counted)
            for host, count in sorted(self._counts.items())
            if count.last_seen
        ]

    def _of(self, name: str) -> _Count | None:
        if (subject := subject_of(name)) is None:
            return None  # `status` shows messages of no host
        count = self._counts.setdefault(subject.host, _Count())
        count.partitions.add(subject.partition)
        return count


def _status(host: str, count: _Count, now: int, is_counted: bool) -> HostStatus:
    files = count.files or {count.file} - {""}
    return HostStatus(
        host=host,
        partitions=tuple(sorted(count.partitions)),
        messages=count.messages - count.malformed,
        last_seen=count.last_seen,
        silent_seconds=round(max(0.0, (now - count.last_seen) / _SECOND), 3),
        agent=count.agent,
        file=count.file,
        lines=count.lines if is_counted else None,
        bytes=count.bytes if is_counted else None,
        first_seen=count.first_seen if is_counted else None,
        files=tuple(sorted(files)[:_FILES_NAMED]),
        file_count=min(len(files), MOST_FILES + 1),
        malformed=count.malformed,
    )


async def ask_hosts(connection: Connection, *, exact: bool | None = None) -> list[HostStatus]:
    """Return the hosts by name; raises `Rejected` or `ConnectionLost`.

    All messages are counted if `exact`, none if not, and where it is None if there are no more than `COUNTED`.
    """
    streams, hosts = await streams_of(connection), Hosts()
    for subject, messages in (await subjects_in(connection, streams)).items():
        hosts.hold(subject, messages)
    infos = [await connection.api(f"STREAM.INFO.{stream}") for stream in streams]
    if exact is None:
        exact = sum(info["state"]["messages"] for info in infos) <= COUNTED
    for stream, info in zip(streams, infos, strict=True):
        start = at_sequence(info["state"]["first_seq"]) if exact else LAST_PER_SUBJECT
        reader = StreamReader(connection, stream, start, headers_only=True)
        take = hosts.count if exact else hosts.last
        async for delivery, message in reader.read_all(info["state"]["last_seq"]):
            take(delivery.stored_at, message)
    now, pauses = nanoseconds(infos[0]["ts"]), await current_pauses(connection)
    moment = datetime.fromtimestamp(now / _SECOND, UTC)
    return [
        replace(one, paused=str(found) if (found := longest(pauses, one.host, moment)) else None)
        for one in hosts.status(now, is_counted=exact)
    ]


class Order(Enum):
    """By what hosts are sorted."""

    NAME = "name"
    MESSAGES = "messages"
    LINES = "lines"
    BYTES = "bytes"
    SILENT = "silent"


_KEYS: dict[Order, Callable[[HostStatus], float]] = {
    Order.NAME: lambda host: 0,
    Order.MESSAGES: lambda host: -host.messages,
    Order.LINES: lambda host: -(host.lines or 0),
    Order.BYTES: lambda host: -(host.bytes or 0),
    Order.SILENT: lambda host: host.last_seen,
}


def sort_hosts(hosts: Sequence[HostStatus], order: Order) -> list[HostStatus]:
    """Return hosts in an order: by name, the largest number first, or the longest silence first."""
    return sorted(hosts, key=lambda host: (_KEYS[order](host), host.host))


def rows(hosts: Iterable[HostStatus]) -> Iterable[tuple[str, ...]]:
    """Yield a row of cells for each host, as `HEAD` names them."""
    return map(_row, hosts)


def _row(host: HostStatus) -> tuple[str, ...]:
    return (
        host.host,
        ",".join(f"p{number}" for number in host.partitions),
        str(host.messages),
        "-" if host.lines is None else str(host.lines),
        "-" if host.bytes is None else format_size(host.bytes),
        "-" if host.first_seen is None else f"{rfc3339(host.first_seen)[:19]}Z",
        f"{rfc3339(host.last_seen)[:19]}Z",
        short_duration(host.silent_seconds) + (", paused" if host.paused else ""),
        host.file + _more(host.file_count),
    )


def pause_notes(hosts: Iterable[HostStatus]) -> list[str]:
    """Return how many hosts each pause holds up."""
    paused = Counter(host.paused for host in hosts if host.paused)
    return [f"{count} {text}" for text, count in paused.items()]


def _more(files: int) -> str:
    if files > MOST_FILES:
        return f", one of more than {MOST_FILES:,}"
    return f" and {files - 1} more" if files > 1 else ""
