"""The hosts that ship, as the streams and the shippers' snapshots show them."""

import asyncio
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from typing import Any

from broker.inspect.collect import collect_brief_status
from broker.inspect.message import read_facts
from broker.inspect.reader import MessageReader, get_last_message
from broker.inspect.status import PartitionStatus
from broker.inspect.streams import list_streams, read_pauses
from nats_logship.app.exits import OperatorError
from nats_logship.app.timestamps import SECOND, format_time, parse_time, to_datetime
from nats_logship.app.units import format_rounded
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import LAST_PER_SUBJECT, at_sequence
from nats_logship.client.stream_state import count_by_subject
from nats_logship.wire.pause import active_pause
from nats_logship.wire.positions import Positions, UnreadablePositions
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.streams import POSITIONS_BUCKET, positions_key
from nats_logship.wire.subjects import parse_subject

HOST_HEAD = ("host", "part", "messages", "last seen", "silent", "last file")
_SNAPSHOTS = f"KV_{POSITIONS_BUCKET}"


@dataclass(slots=True)
class HostStatus:
    """A host; `last_seen` is in nanoseconds since the epoch.

    `agent` and `file` are those of its last message; empty if another client sent it, `file` also
    if it is a claim. `behind_seconds` is the age of the oldest message that waits in the host's
    partition, 0 if a receiver has committed the host's last message, None if unknown. `paused` says
    until when an operator has paused the host, by whom and why. `files` is the number of files in
    the snapshot of its shipper, and `version` the shipper's; None and empty if unknown.
    """

    host: str
    partitions: tuple[int, ...] = ()
    messages: int = 0
    last_seen: int = 0
    silent_seconds: float = 0.0
    behind_seconds: float | None = 0.0
    agent: str = ""
    file: str = ""
    paused: str | None = None
    files: int | None = None
    version: str = ""

    def add(self, last: StreamMessage, partition: PartitionStatus | None, messages: int) -> None:
        """Add a subject of the host: its last message, and how many messages it has."""
        facts = read_facts(last)
        if facts.subject is not None:
            self.partitions = tuple(sorted({*self.partitions, facts.subject.partition}))
        if partition is None or partition.behind_seconds is None:
            self.behind_seconds = None
        elif last.sequence >= (partition.offset or 0) and self.behind_seconds is not None:
            self.behind_seconds = max(self.behind_seconds, partition.behind_seconds)
        self.messages += messages
        if last.stored_at >= self.last_seen:
            self.last_seen = last.stored_at
            origin = None if facts.trouble else facts.origin
            self.agent = origin.agent if origin else ""
            self.file = origin.sections[-1].path if origin and origin.sections else ""

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"last_seen": format_time(self.last_seen)}

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table, as `HOST_HEAD` names them."""
        return (
            self.host,
            ",".join(f"p{number}" for number in self.partitions),
            str(self.messages),
            f"{format_time(self.last_seen)[:19]}Z",
            format_rounded(self.silent_seconds) + (", paused" if self.paused else ""),
            self.file or ("(no lines since it started)" if self.agent else "-"),
        )


class SavedPositions:
    """The snapshots of all hosts. Each `read` reads only those that were written since the last."""

    def __init__(self) -> None:
        """Hold no snapshot before `read`."""
        self.by_key: dict[str, tuple[int, str]] = {}
        """The number of files of a host, and the version of its shipper, by the snapshot's key."""
        self._last = 0  # sequence that was read

    async def read(self, connection: Connection) -> None:
        """Read the snapshots that are new; raises `Rejected`, `ConnectionLost`."""
        state = (await connection.api(f"STREAM.INFO.{_SNAPSHOTS}"))["state"]
        if state["last_seq"] < self._last:  # the bucket was recreated
            self._last, self.by_key = 0, {}
        reader = MessageReader(connection, _SNAPSHOTS, at_sequence(self._last + 1))
        async with aclosing(reader.read_all(state["last_seq"])) as messages:
            async for one in messages:
                with suppress(UnreadablePositions):
                    saved = Positions.decode(one.payload)
                    self.by_key[one.subject.rpartition(".")[2]] = len(saved.files), saved.version
                self._last = one.sequence
                await asyncio.sleep(0)  # a snapshot may be large
        self._last = state["last_seq"]


async def collect_hosts(
    connection: Connection, saved: SavedPositions | None = None
) -> list[HostStatus]:
    """Return the hosts by name: from subjects, the last message of each, and `saved` if given.

    For 100,000 hosts the server sends 3.5 MB of subjects and the headers of 100,000 messages.
    Raises `Rejected`, `ConnectionLost`.
    """
    status = await collect_brief_status(connection)
    streams = [one.name for one in status.streams]
    subjects, pauses = await asyncio.gather(
        count_by_subject(connection, streams), read_pauses(connection)
    )
    partitions = {one.partition: one for one in status.partitions}
    found: dict[str, HostStatus] = {}
    for stream in streams:
        reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
        async with aclosing(reader.read_all()) as messages:
            last = {one.subject: one async for one in messages}
        for name, one in last.items():
            if subject := parse_subject(name):  # `status` counts messages without a host
                host = found.setdefault(subject.host, HostStatus(subject.host))
                host.add(one, partitions.get(subject.partition), subjects.get(name, 0))
    now = parse_time(status.now)
    moment = to_datetime(now)
    if saved:
        # show the hosts even if the bucket is lost, or this user may not read it
        with suppress(Rejected):
            await saved.read(connection)
    for host in found.values():
        if saved:
            host.files, host.version = saved.by_key.get(positions_key(host.host), (None, ""))
        host.silent_seconds = round(max(0.0, (now - host.last_seen) / SECOND), 3)
        if pause := active_pause(pauses, host.host, moment):
            host.paused = str(pause)
    return [found[name] for name in sorted(found)]


async def describe_host(connection: Connection, host: str) -> dict[str, Any]:
    """Return the files of a host, from its snapshot and its last message, and its partition.

    The partition is None if its messages have expired. Raises `Rejected`, `ConnectionLost`.
    """
    entry = await bucket.read(connection, POSITIONS_BUCKET, positions_key(host))
    known: dict[str, Any] = {"host": host, "saved": None, "version": ""}
    known |= {"files": [], "partition": None}
    try:
        positions = Positions.decode(entry.value) if entry else Positions()
    except UnreadablePositions as error:
        return known | {"error": str(error)}
    with suppress(OperatorError):
        last = await get_last_message(connection, await list_streams(connection), host)
        subject, origin, trouble = read_facts(last)
        known["partition"] = subject.partition if subject else None
        if origin and not trouble:
            positions = positions.advance([origin], last.sequence)
    files = sorted(positions.files.values(), key=lambda cursor: (cursor.path, cursor.seen))
    known["saved"] = entry.time if entry else None
    known["version"] = positions.version
    known["files"] = [
        {
            "path": one.path,
            "position": one.offset,
            "unit": one.unit,
            "read": format_time(one.seen),
        }
        for one in files
    ]
    return known
