"""Purges what a person has chosen, and erases single messages; tells before what that means.

Killed in the middle, some of it is gone and some is not: the same command again takes the rest.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.app.exits import OperatorError
from broker.app.selection import LineSelection
from broker.client.config import existing_partitions, require_layout
from broker.client.connection import Connection
from broker.inspect.ask import find_message, get_message, subjects_in
from broker.inspect.message import StoredMessage, subject_of
from broker.retention.committed import committed_until, needed
from broker.retention.completing import complete_snapshots
from broker.wire.streams import stream_of
from broker.wire.subjects import partition_filter

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

    stream: str
    created: str
    parts: tuple[PurgePart, ...]
    until: int | None


async def choose(connection: Connection, choice: Choice) -> list[Purge]:
    """Return what would go, by stream; what comes from now on is not among it. Raises `Rejected`, `ConnectionLost`."""
    layout = await require_layout(connection)
    existing = await existing_partitions(connection)
    found = []
    for stream in layout.names:
        partitions = [n for n in range(existing) if stream_of(n, layout.streams) == stream]
        found.append(await _choose(connection, stream, choice, partitions))
    return [one for one in found if one.parts]


async def _choose(
    connection: Connection, stream: str, choice: Choice, partitions: list[int]
) -> Purge:
    info = await connection.api(f"STREAM.INFO.{stream}")
    last = int(info["state"]["last_seq"])
    end = min(last + 1, last + 1 if choice.until is None else choice.until)
    if choice.before is not None:
        since = choice.before.astimezone(UTC).isoformat().replace("+00:00", "Z")
        first = await find_message(connection, stream, {"start_time": since, "next_by_subj": ">"})
        end = min(end, first.sequence) if first else end
    wants = await needed(connection, info, partitions)
    is_all = not (choice.hosts or choice.partitions)
    if choice.received and is_all:
        end = min([end, *wants.values()])
    parts = []
    for subject_filter, partition in await _filters(connection, stream, choice, partitions):
        unreceived_from = wants.get(f"partition {partition}", end)
        until = min(end, unreceived_from) if choice.received else end
        kept = await _count(connection, stream, subject_filter, until)
        messages = await _count(connection, stream, subject_filter, 1) - kept
        unreceived = 0
        if unreceived_from < until:
            unreceived = await _count(connection, stream, subject_filter, unreceived_from) - kept
        if messages:
            parts.append(PurgePart(subject_filter, until, messages, unreceived))
    return Purge(stream, info["created"], tuple(parts), end if is_all else None)


async def _filters(
    connection: Connection, stream: str, choice: Choice, partitions: list[int]
) -> list[tuple[str, int]]:
    """Return the subject filters that take in what is chosen of a stream, each with its partition."""
    chosen = [n for n in partitions if not choice.partitions or n in choice.partitions]
    if not choice.hosts:
        return [(partition_filter(n), n) for n in chosen]
    wanted = LineSelection(choice.hosts)
    return sorted(
        (name, subject.partition)
        for name in await subjects_in(connection, [stream])
        if (subject := subject_of(name))  # of no host that a glob could mean
        and subject.partition in chosen
        and wanted.wants_host(subject.host)
    )


async def _count(connection: Connection, stream: str, subject_filter: str, first: int) -> int:
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
    body = {"stream_name": stream, "config": config}
    made = await connection.api(f"CONSUMER.CREATE.{stream}", body)
    await connection.api(f"CONSUMER.DELETE.{stream}.{made['name']}")
    return int(made["num_pending"])


async def purge(connection: Connection, chosen: Purge) -> int:
    """Purge what was chosen and return how many messages went; raises `OperatorError`, `Rejected`, `ConnectionLost`.

    The snapshots of the hosts are completed first: a shipper that is killed then does not ship these lines again.
    """
    stream = chosen.stream
    await complete_snapshots(connection, stream, max(part.until for part in chosen.parts))
    if (await connection.api(f"STREAM.INFO.{stream}"))["created"] != chosen.created:
        raise OperatorError(f"stream {stream} was made anew meanwhile; nothing was removed of it")
    bodies: list[dict[str, Any]] = [{"seq": chosen.until}]
    if chosen.until is None:
        bodies = [{"filter": part.filter, "seq": part.until} for part in chosen.parts]
    call = f"STREAM.PURGE.{stream}"
    gone = [await connection.api(call, body, patience=_PATIENCE) for body in bodies]
    return sum(int(answer["purged"]) for answer in gone)


async def consequences(connection: Connection, stream: str, message: StoredMessage) -> str:
    """Return what is to be known before a message is erased; raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{stream}")
    partition = message.subject.partition if message.subject else None
    until = 0 if partition is None else await committed_until(connection, info, partition)
    if message.sequence < until:
        return "receivers have it: their files, and what was made of them, are not touched"
    return "no receiver has it yet: they will name its lines as missing"


async def erase(connection: Connection, stream: str, message: StoredMessage) -> None:
    """Take a message out of a stream and overwrite it in the store.

    Raises `OperatorError` where another one is there by now, `Rejected`, `ConnectionLost`.
    """
    found = await get_message(connection, stream, message.sequence)
    if (found.name, found.stored_at) != (message.name, message.stored_at):
        raise OperatorError(
            f"message {message.sequence} is another one by now; nothing was removed"
        )
    body = {"seq": message.sequence, "no_erase": False}
    await connection.api(f"STREAM.MSG.DELETE.{stream}", body, patience=60)
