"""Asks how the broker is. Changes nothing."""

import asyncio
from dataclasses import replace
from typing import Any

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.partitions import current_partitions, existing_partitions
from broker.client.pauses import current_pauses
from broker.looking.hosts import subjects
from broker.looking.reports import reports
from broker.looking.sight import PartitionStatus, Status, hosts_of, strays_of
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from broker.wire.subjects import consumer_name, partition_filter

__all__ = ["ask", "glance"]

_AT_ONCE = 64  # requests under way


async def ask(connection: Connection) -> Status:
    """Return all there is to say; raises `Rejected` or `ConnectionLost`."""
    seen, found, pauses = await asyncio.gather(
        glance(connection), subjects(connection), current_pauses(connection)
    )
    return replace(
        seen,
        hosts=hosts_of(found),
        strays=strays_of(found, len(seen.partitions)) if seen.partitions else None,
        # of how many servers a cluster is is not known here
        nodes=await reports(connection, expected=0 if seen.cluster else 1),
        pauses=pauses,
    )


async def glance(connection: Connection) -> Status:
    """Return what is cheap to learn: neither the subjects nor the reports of the nodes."""
    client = await connection.client()
    version = client.connected_server_version
    number = f"{version.major}.{version.minor}.{version.patch}"
    info, account, current, partitions = await asyncio.gather(
        connection.api(f"STREAM.INFO.{STREAM}"),
        connection.api("INFO"),
        current_partitions(connection),
        _partitions(connection),
    )
    return Status.of((connection.servers, number), info, account, current, partitions)


async def _partitions(connection: Connection) -> tuple[PartitionStatus, ...]:
    count = await existing_partitions(connection)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> PartitionStatus:
        async with gate:
            offset = await _offset(connection, number)
            found = PartitionStatus.of(number, await _consumer(connection, number), offset)
            return replace(found, oldest_pending=await _oldest(connection, found))

    return tuple(await asyncio.gather(*map(one, range(count))))


async def _consumer(connection: Connection, partition: int) -> dict[str, Any] | None:
    """Return what the server tells of a partition's consumer; None where it has none that answers.

    The list of all would be held up by any consumer whose server is away, throw-away ones among them.
    """
    try:
        return await connection.api(f"CONSUMER.INFO.{STREAM}.{consumer_name(partition)}")
    except (Rejected, ConnectionLost):
        return None


async def _offset(connection: Connection, partition: int) -> Offset | UnreadableOffset | None:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    try:
        return Offset.decode(entry.value) if entry else None
    except UnreadableOffset as error:
        return error  # of one partition: the others are shown as usual


async def _oldest(connection: Connection, partition: PartitionStatus) -> str | None:
    """Return when the first message that waits was stored; None where none waits, or nobody tells."""
    first = partition.first_pending
    if first is None:
        return None
    return await time_of_next(connection, partition.partition, first)


async def time_of_next(connection: Connection, partition: int, sequence: int) -> str | None:
    """Return when the first message of a partition at a sequence or behind it was stored; None where there is none.

    A replica that lags may answer.
    """
    body = f'{{"seq": {max(1, sequence)}, "next_by_subj": "{partition_filter(partition)}"}}'
    try:
        answer = await connection.call(f"DIRECT.GET.{STREAM}", body.encode())
    except Rejected:
        return None  # of a stream without allow_direct
    return (answer.headers or {}).get("Nats-Time-Stamp")
