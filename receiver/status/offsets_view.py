"""What `logreceiver offsets` shows: where each partition stands, what waits behind it, and how it came there."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from broker.app.printable import printable
from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from broker.wire.subjects import partition_filter
from receiver.consume.ledger import stream_state
from receiver.driver.presence import Life, life_of
from receiver.status.columns import columns

__all__ = ["PartitionOffset", "Step", "as_json", "as_table", "gather", "waiting"]


@dataclass(frozen=True, slots=True)
class Step:
    """One revision of an entry; `words` say what is wrong with one that cannot be read."""

    revision: int
    time: str
    next: int
    epoch: int
    owner: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """A partition's entry; `behind` is in messages, `first` and `until` are the sequences that the stream holds.

    `error` says why the entry cannot be read, None where it can or there is none; it then says nothing else.
    """

    partition: int
    next: int
    epoch: int
    owner: str
    is_running: bool | None
    lines: int
    committed_at: str
    first: int
    until: int
    behind: int
    history: tuple[Step, ...]
    error: str | None = None


async def gather(connection: Connection, partitions: Sequence[int]) -> list[PartitionOffset]:
    """Ask the broker; raises `Rejected`, `ConnectionLost`."""
    return [await _one(connection, partition) for partition in partitions]


async def _one(connection: Connection, partition: int) -> PartitionOffset:
    stream = await stream_state(connection)
    revisions = await bucket.history(connection, OFFSETS_BUCKET, offset_key(partition))
    steps = tuple(map(_step, revisions))
    newest = revisions[-1] if revisions and not revisions[-1].is_deletion else None
    offset, error = Offset(0, 0, "", ""), None
    try:
        offset = Offset.decode(newest.value) if newest else offset
    except UnreadableOffset as unreadable:
        error = str(unreadable)
    return PartitionOffset(
        partition,
        offset.next,
        offset.epoch,
        offset.owner,
        await _is_running(connection, offset),
        offset.lines,
        offset.committed_at,
        stream.first,
        stream.until,
        await waiting(connection, partition, max(offset.next, 1)),
        steps,
        error,
    )


def _step(revision: bucket.Revision) -> Step:
    try:
        offset = Offset.decode(revision.value)
    except UnreadableOffset as error:
        words = "deleted" if revision.is_deletion else str(error)
        return Step(revision.revision, revision.time, 0, 0, "", words)
    return Step(revision.revision, revision.time, offset.next, offset.epoch, offset.owner)


async def _is_running(connection: Connection, offset: Offset) -> bool | None:
    """Return whether the owner answers, None when it cannot be asked."""
    if offset.epoch == 0 or offset.is_moved or offset.released:
        return False
    if not offset.presence:
        return None
    return await life_of(connection, offset.presence) is Life.ALIVE


async def waiting(connection: Connection, partition: int, sequence: int) -> int:
    """Return how many messages of a partition the stream holds from a sequence on; raises `Rejected`, `ConnectionLost`."""
    config: dict[str, Any] = {
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(sequence, 1),
        "filter_subject": partition_filter(partition),
        "headers_only": True,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 5_000_000_000,
    }
    answer = await connection.api(
        f"CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config}
    )
    await connection.api(f"CONSUMER.DELETE.{STREAM}.{answer['name']}")
    return int(answer["num_pending"])


def as_json(partitions: Sequence[PartitionOffset], *, with_history: bool) -> str:
    """Write the offsets for programs."""
    entries = [asdict(partition) for partition in partitions]
    for entry in entries:
        if not with_history:
            del entry["history"]
    return json.dumps({"partitions": entries}, indent=2)


def as_table(partitions: Sequence[PartitionOffset], *, with_history: bool) -> str:
    """Write the offsets for people."""
    running = {True: "yes", False: "no", None: "?"}
    rows = [
        ("partition", "next", "behind", "stream", "lines", "epoch", "running", "owner", "committed")
    ]
    for p in partitions:
        held = f"{p.first}-{p.until - 1}" if p.until > p.first else "empty"
        rows.append(
            (
                *(str(p.partition), str(p.next), str(p.behind), held, f"{p.lines:,}", str(p.epoch)),
                *(running[p.is_running], _owner(p), p.committed_at or "never"),
            )
        )
    broken = [
        f"partition {p.partition} cannot be received: {p.error}" for p in partitions if p.error
    ]
    text = "\n".join([columns(rows), *map(printable, broken)])
    if not with_history:
        return text
    steps: list[tuple[str, ...]] = [("partition", "revision", "time", "next", "epoch", "owner")]
    steps += [
        (str(p.partition), str(s.revision), s.time, str(s.next), str(s.epoch), s.words or s.owner)
        for p in partitions
        for s in p.history
    ]
    return f"{text}\n\n{columns(steps)}"


def _owner(partition: PartitionOffset) -> str:
    return "UNREADABLE" if partition.error else partition.owner or "nobody yet"
