"""Purge messages of the streams: find who still needs them, count them, remove them.

If a purge is killed, some messages are removed and some are not; the same command again removes the
rest. Only the stream leader is asked how far receivers have committed: a replica may not know yet
that a person has moved an offset back.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker.inspect.reader import MessageReader, find_sequence_at
from broker.inspect.streams import require_partitions
from broker.provision.apply import list_consumers
from broker.retention.decide import Purge, belongs_to_stream, ends_at, find_consumer_needs
from broker.retention.snapshots import complete_snapshots
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import Moment
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.client.stream_reader import at_sequence
from nats_logship.client.stream_state import count_by_subject
from nats_logship.client.tables import read_tables
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from nats_logship.wire.subjects import parse_subject, partition_filter

_PATIENCE = 600.0  # seconds; nats-server reads the whole stream to purge by subject
_QUESTIONS_AT_ONCE = 32


async def find_needs(
    connection: Connection, info: Mapping[str, Any], partitions: Iterable[int]
) -> dict[str, int]:
    """Return the first sequence that is still needed, by who needs it.

    The keys are such as `partition 3`, `consumer audit` and `table /srv/logs`. `info` is
    STREAM.INFO's answer.
    """
    stream, limit = info["config"]["name"], asyncio.Semaphore(_QUESTIONS_AT_ONCE)
    found: dict[str, int] = {}

    async def ask(partition: int) -> None:
        async with limit:
            until = await _read_committed(connection, info, partition)
            asked = {"seq": max(until, 1), "next_by_subj": partition_filter(partition)}
            if message := await find_message(connection, stream, asked):
                found[f"partition {partition}"] = message.sequence

    await asyncio.gather(*map(ask, partitions))
    for table in await read_tables(connection):
        asked = {"seq": table.first_needed(info), "next_by_subj": ">"}
        if message := await find_message(connection, stream, asked):
            least = found.get(table.name, message.sequence)  # two machines may have one address
            found[table.name] = min(least, message.sequence)
    return found | find_consumer_needs(await list_consumers(connection, stream))


async def _read_committed(connection: Connection, info: Mapping[str, Any], partition: int) -> int:
    """Return the sequence below which a partition is committed.

    Return 0 if its offset is missing, unreadable, or of another stream.
    """
    key = f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}"
    entry = await find_message(connection, f"KV_{OFFSETS_BUCKET}", {"last_by_subj": key})
    try:
        offset = Offset.decode(entry.payload) if entry else None
    except UnreadableOffset:
        return 0
    if offset is None or not belongs_to_stream(offset, info):
        return 0
    last = await find_message(connection, info["config"]["name"], {"seq": offset.next - 1})
    return offset.next if ends_at(offset, last.stored_at if last else None) else 0


async def plan_purges(
    connection: Connection,
    hosts: tuple[str, ...] = (),
    partitions: tuple[int, ...] = (),
    before: Moment | None = None,
) -> list[Purge]:
    """Return the purges of an operator, one for each stream that has such messages.

    They are the messages of these hosts (globs) and partitions, all by default, that are below a
    sequence or older than a time. Messages that arrive from now on are not among them. Raises
    `Rejected`, `ConnectionLost`, and `OperatorError` for a partition that does not exist.
    """
    layout = await require_layout(connection)
    found = []
    infos = [await connection.api(f"STREAM.INFO.{stream}") for stream in layout.names]
    require_partitions(partitions, layout, (info["config"] for info in infos))
    for stream, info in zip(layout.names, infos, strict=True):
        chosen = [
            n for n in layout.partitions_in(info["config"]) if not partitions or n in partitions
        ]
        filters = tuple(partition_filter(n) for n in chosen if partitions)
        if hosts:
            filters = await _find_subjects(connection, stream, hosts, chosen)
        if filters or not (hosts or partitions):
            until = int(info["state"]["last_seq"]) + 1
            if before is not None:
                until = await find_sequence_at(connection, stream, before, until)
            needs = await find_needs(connection, info, chosen)
            found.append(
                Purge(
                    stream=stream,
                    created=info["created"],
                    until=until,
                    filters=filters,
                    messages=await _count(connection, stream, filters, until),
                    needed_by=tuple(sorted(who for who, first in needs.items() if first < until)),
                )
            )
    return [one for one in found if one.messages]


async def _find_subjects(
    connection: Connection, stream: str, globs: tuple[str, ...], partitions: Sequence[int]
) -> tuple[str, ...]:
    """Return the subjects of a stream whose hosts match globs, in these partitions."""
    wanted, names = LineSelection(globs), await count_by_subject(connection, [stream])
    known = {name: parse_subject(name) for name in sorted(names)}
    return tuple(
        name
        for name, one in known.items()
        if one and one.partition in partitions and wanted.wants_host(one.host)
    )


async def _count(connection: Connection, stream: str, filters: Sequence[str], until: int) -> int:
    """Return how many messages are below a sequence, on subjects that match one of `filters`."""
    # the later ones first: of those that come meanwhile none is subtracted
    readers = (MessageReader(connection, stream, at_sequence(one), filters) for one in (until, 1))
    later, all_messages = [await reader.count() for reader in readers]
    return all_messages - later


async def run_purges(
    connection: Connection, purges: Sequence[Purge], patience: float = _PATIENCE
) -> int:
    """Complete the hosts' snapshots, purge, and return how many messages were removed.

    `patience` is in seconds, for each call. Raises `OperatorError` if a stream was recreated since
    the purge was planned, `Rejected`, `ConnectionLost`.
    """
    removed = 0
    for one in purges:
        await complete_snapshots(connection, one.stream, one.until)
        if (await connection.api(f"STREAM.INFO.{one.stream}"))["created"] != one.created:
            raise OperatorError(
                f"stream {one.stream} was recreated meanwhile; none of its messages was removed"
            )
        for subject in one.filters or ("",):  # without a filter nats-server searches nothing
            body = {"seq": one.until} | ({"filter": subject} if subject else {})
            answer = await connection.api(f"STREAM.PURGE.{one.stream}", body, patience=patience)
            removed += int(answer["purged"])
    return removed
