"""Purges what a person has chosen, and erases single messages; tells before what that means.

Killed in the middle, some of it is gone and some is not: the same command again takes the rest.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.app.exits import OperatorError
from broker.app.selection import Selection
from broker.client.connection import Connection
from broker.client.partitions import existing_partitions
from broker.looking.hosts import subjects
from broker.looking.message import Held
from broker.looking.one import fetch
from broker.retention.committed import committed_until, needed
from broker.retention.completing import complete_snapshots
from broker.retention.headers import read_headers
from broker.wire.streams import STREAM
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject, partition_filter

__all__ = ["Choice", "Purge", "PurgePart", "choose", "consequences", "erase", "purge"]

_PATIENCE = 600.0  # seconds; nats-server reads the whole stream to purge a subject


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to go: of these hosts (globs) and partitions, none meaning all, what is below a sequence or older than a time."""

    hosts: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    until: int | None = None
    before: datetime | None = None
    received: bool = False


@dataclass(frozen=True, slots=True)
class PurgePart:
    """The messages of a subject filter below sequence `until`; of so many `messages`, no receiver has `unreceived`."""

    filter: str
    until: int
    messages: int
    unreceived: int


@dataclass(frozen=True, slots=True)
class Purge:
    """What would go of the stream that was made at `created`: all below `until`, or, where that is None, the parts."""

    created: str
    parts: tuple[PurgePart, ...]
    until: int | None

    @property
    def messages(self) -> int:
        """How many messages would go."""
        return sum(part.messages for part in self.parts)

    @property
    def unreceived(self) -> int:
        """How many of them no receiver has."""
        return sum(part.unreceived for part in self.parts)


async def choose(connection: Connection, choice: Choice) -> Purge:
    """Return what would go; what comes from now on is not among it. Raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{STREAM}")
    end = await _end(connection, info, choice)
    partitions = range(await existing_partitions(connection))
    wants = await needed(connection, info, partitions)
    if choice.received and not (choice.hosts or choice.partitions):
        end = min([end, *wants.values()])
    parts = []
    for subject_filter, partition in await _filters(connection, choice, partitions):
        unreceived_from = wants.get(f"partition {partition}", end)
        until = min(end, unreceived_from) if choice.received else end
        from_there = await _count(connection, subject_filter, until)
        messages = await _count(connection, subject_filter, 1) - from_there
        unreceived = 0
        if unreceived_from < until:
            unreceived = await _count(connection, subject_filter, unreceived_from) - from_there
        if messages:
            parts.append(PurgePart(subject_filter, until, messages, unreceived))
    is_all = not (choice.hosts or choice.partitions)
    return Purge(info["created"], tuple(parts), end if is_all else None)


async def _end(connection: Connection, info: Mapping[str, Any], choice: Choice) -> int:
    end = int(info["state"]["last_seq"]) + 1
    if choice.until is not None:
        end = min(end, choice.until)
    if choice.before is None:
        return end
    moment = choice.before.astimezone(UTC).isoformat().replace("+00:00", "Z")
    start = {"deliver_policy": "by_start_time", "opt_start_time": moment}
    async with aclosing(read_headers(connection, STREAM, start, [">"])) as heads:
        async for head in heads:
            return min(end, head.sequence)
    return end


async def _filters(
    connection: Connection, choice: Choice, partitions: range
) -> list[tuple[str, int]]:
    """Return the subject filters that take in what is chosen, each with its partition."""
    if not choice.hosts:
        return [(partition_filter(n), n) for n in choice.partitions or partitions]
    wanted, found = Selection(choice.hosts), []
    for name in await subjects(connection):
        try:
            subject = Subject.parse(name)
        except (InvalidSubject, InvalidHost):
            continue  # of no host that a glob could mean
        is_chosen = not choice.partitions or subject.partition in choice.partitions
        if is_chosen and wanted.wants_host(subject.host):
            found.append((name, subject.partition))
    return sorted(found)


async def _count(connection: Connection, subject_filter: str, first: int) -> int:
    """Return how many messages there are from a sequence on."""
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(first, 1),
        "filter_subject": subject_filter,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 5_000_000_000,
    }
    body = {"stream_name": STREAM, "config": config}
    made = await connection.api(f"CONSUMER.CREATE.{STREAM}", body)
    await connection.api(f"CONSUMER.DELETE.{STREAM}.{made['name']}")
    return int(made["num_pending"])


async def purge(connection: Connection, chosen: Purge) -> int:
    """Purge what was chosen and return how many messages went; raises `OperatorError`, `Rejected`, `ConnectionLost`.

    The snapshots of the hosts are completed first: a shipper that is killed then does not ship these lines again.
    """
    await complete_snapshots(connection, STREAM, max(part.until for part in chosen.parts))
    if (await connection.api(f"STREAM.INFO.{STREAM}"))["created"] != chosen.created:
        raise OperatorError(f"stream {STREAM} was made anew meanwhile; nothing was removed")
    bodies: list[dict[str, Any]] = [{"seq": chosen.until}]
    if chosen.until is None:
        bodies = [{"filter": part.filter, "seq": part.until} for part in chosen.parts]
    gone = 0
    for body in bodies:
        answer = await connection.api(f"STREAM.PURGE.{STREAM}", body, patience=_PATIENCE)
        gone += int(answer["purged"])
    return gone


async def consequences(connection: Connection, message: Held) -> list[str]:
    """Return what is to be known before a message is erased; raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{STREAM}")
    partition = message.subject.partition if message.subject else None
    until = 0 if partition is None else await committed_until(connection, info, partition)
    newest = await connection.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": message.name})
    words = ["no receiver has it yet: they will name its lines as missing"]
    if message.sequence < until:
        words = ["receivers have it: their files, and what was made of them, are not touched"]
    if int(newest["message"]["seq"]) == message.sequence:
        words.append(
            "it is the newest of its host: a shipper whose snapshot of positions is lost as well ships these lines again, as "
            "long as its file has them"
        )
    return words


async def erase(connection: Connection, message: Held) -> None:
    """Take a message out and overwrite it in the store.

    Raises `OperatorError` where another one is there by now, `Rejected`, `ConnectionLost`.
    """
    found = await fetch(connection, message.sequence)
    if (found.name, found.stored_at) != (message.name, message.stored_at):
        raise OperatorError(
            f"message {message.sequence} is another one by now; nothing was removed"
        )
    body = {"seq": message.sequence, "no_erase": False}
    await connection.api(f"STREAM.MSG.DELETE.{STREAM}", body, patience=60)
