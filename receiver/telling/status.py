"""What a receiver's operator asks first: who owns each partition, how far it has come, and how much is waiting."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from broker import bucket
from broker.access import Access
from broker.connection import Connection, Rejected
from broker.exits import OperatorError
from broker.offset import Offset, UnreadableOffset
from broker.subjects import consumer_name
from broker.topology import CONFIG_BUCKET, OFFSETS_BUCKET, PARTITIONS_KEY, STREAM, offset_key

__all__ = ["PartitionStatus", "as_json", "as_table", "gather"]


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition as KV and its consumer tell of it; `waiting` is in messages, None when there is no consumer yet."""

    partition: int
    next: int
    epoch: int
    owner: str
    lines: int
    size: int
    last_time: str
    committed_at: str
    waiting: int | None


_UNCLAIMED = Offset(0, 0, "", "")


async def gather(servers: Sequence[str], access: Access) -> list[PartitionStatus]:
    """Ask the broker; raises `BrokerAway`, OperatorError when nothing has been set up there."""
    connection = Connection(servers, "logreceiver status", access=access)
    try:
        await connection.once()
        entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
        count = int(entry.value) if entry else 0
        return [await _partition(connection, number) for number in range(count)]
    except Rejected as error:
        raise OperatorError(
            f"the broker has no logship stream and buckets ({error}); run `logbroker apply`"
        ) from None
    finally:
        await connection.close()


async def _partition(connection: Connection, partition: int) -> PartitionStatus:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    try:
        offset = Offset.decode(entry.value) if entry else _UNCLAIMED
    except UnreadableOffset as error:
        offset = Offset(0, 0, "", f"unreadable: {error}")
    return PartitionStatus(
        partition,
        offset.next,
        offset.epoch,
        offset.owner,
        offset.lines,
        offset.size,
        offset.last_time,
        offset.committed_at,
        await _waiting(connection, partition),
    )


async def _waiting(connection: Connection, partition: int) -> int | None:
    try:
        info = await connection.api(f"CONSUMER.INFO.{STREAM}.{consumer_name(partition)}")
    except Rejected:
        return None
    return int(info["num_pending"]) + int(info["num_ack_pending"])


def as_json(partitions: Sequence[PartitionStatus]) -> str:
    """Write the status for programs."""
    return json.dumps({"partitions": [asdict(partition) for partition in partitions]}, indent=2)


def as_table(partitions: Sequence[PartitionStatus]) -> str:
    """Write the status for people."""
    head = ("partition", "next", "waiting", "lines", "bytes", "epoch", "owner", "last commit")
    rows = [
        (
            str(p.partition),
            str(p.next),
            "?" if p.waiting is None else str(p.waiting),
            f"{p.lines:,}",
            f"{p.size:,}",
            str(p.epoch),
            p.owner or "nobody yet",
            p.committed_at or "never",
        )
        for p in partitions
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )
