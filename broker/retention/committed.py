"""Asks how far a stream is received: the first message that a receiver, or another durable consumer, still needs.

All answers come from leaders: a replica that lags may not know yet that a person has moved an offset back.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from broker.client.connection import Connection
from broker.inspect.ask import find_message
from broker.inspect.message import nanoseconds
from broker.provision.apply import consumers_of
from broker.wire.descent import ancestors
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from broker.wire.subjects import partition_filter

__all__ = ["committed_until", "needed"]

_OURS = re.compile(r"receiver-p\d+|shipper-.+|wake-p\d+-.+")
_AT_ONCE = 32
_ROUNDED = timedelta(milliseconds=5)  # offsets hold times to the millisecond


async def needed(
    connection: Connection, info: Mapping[str, Any], partitions: Iterable[int]
) -> dict[str, int]:
    """Return the first sequence that is still needed, by who needs it: `partition 3`, or `consumer audit`.

    Whoever has received everything is left out. `info` is the answer to STREAM.INFO. Raises `Rejected`, `ConnectionLost`.
    """
    stream, gate = info["config"]["name"], asyncio.Semaphore(_AT_ONCE)
    found: dict[str, int] = {}

    async def ask(partition: int) -> None:
        async with gate:
            until = await committed_until(connection, info, partition)
            asked = {"seq": max(until, 1), "next_by_subj": partition_filter(partition)}
            if message := await find_message(connection, stream, asked):
                found[f"partition {partition}"] = message.sequence

    await asyncio.gather(*map(ask, partitions))
    for consumer in await consumers_of(connection, stream):
        name, config = consumer["name"], consumer["config"]
        acknowledges = config.get("durable_name") and config.get("ack_policy", "none") != "none"
        is_behind = consumer.get("num_pending") or consumer.get("num_ack_pending")
        # a host could make one that bears a name of ours
        if acknowledges and is_behind and not _OURS.fullmatch(name):
            found[f"consumer {name}"] = int(consumer["ack_floor"]["stream_seq"]) + 1
    return found


async def committed_until(connection: Connection, info: Mapping[str, Any], partition: int) -> int:
    """Return the sequence below which a partition is committed, 0 where nobody can tell; raises as `needed`.

    An offset of another stream, or one that a person has moved and no receiver has used yet, says nothing of this one.
    """
    key = f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}"
    entry = await find_message(connection, f"KV_{OFFSETS_BUCKET}", {"last_by_subj": key})
    try:
        offset = Offset.decode(entry.payload) if entry else None
    except UnreadableOffset:
        return 0
    if offset is None or offset.moved_in or not offset.last_time:
        return 0
    ends = {one.created: one.until for one in ancestors(info["config"])}
    ends[info["created"]] = int(info["state"]["last_seq"]) + 1
    end = ends.get(offset.stream_created, 0)
    if offset.next > end:
        return end if offset.stream_created != info["created"] else 0
    # a stream that lost its end gives numbers again: the last committed message must be the one with that number
    last = await find_message(connection, info["config"]["name"], {"seq": offset.next - 1})
    if last is None:
        return offset.next  # purged, as most that is committed
    apart = timedelta(microseconds=(last.stored_at - nanoseconds(offset.last_time)) // 1000)
    return offset.next if abs(apart) < _ROUNDED else 0
