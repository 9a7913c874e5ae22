"""Asks how far a stream is received: the first message that a receiver, or another durable consumer, still needs.

All answers come from leaders: a replica that lags may not know yet that a person has moved an offset back.
"""

import asyncio
import base64
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from broker.client.connection import Connection, Rejected
from broker.provision.apply import consumers_of
from broker.wire.descent import ancestors
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from broker.wire.subjects import partition_filter

__all__ = ["committed_until", "needed"]

_OURS = re.compile(r"receiver-p\d+|shipper-.+|wake-p\d+-.+")
_AT_ONCE = 32
_NO_MESSAGE_FOUND = 10037
_ROUNDED = timedelta(milliseconds=5)  # offsets hold times to the millisecond


async def needed(
    connection: Connection, info: Mapping[str, Any], partitions: Iterable[int]
) -> dict[str, int]:
    """Return the first sequence that is still needed, by who needs it: `partition 3`, or `consumer audit`.

    Whoever has received everything is left out. `info` is the answer to STREAM.INFO. Raises `Rejected`, `ConnectionLost`.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(partition: int) -> tuple[str, int | None]:
        async with gate:
            until = await committed_until(connection, info, partition)
            body = {"seq": max(until, 1), "next_by_subj": partition_filter(partition)}
            message = await _message(connection, info["config"]["name"], body)
            return f"partition {partition}", int(message["seq"]) if message else None

    found = await asyncio.gather(*map(one, partitions))
    return dict(await _of_consumers(connection, info["config"]["name"])) | {
        name: sequence for name, sequence in found if sequence is not None
    }


async def _of_consumers(connection: Connection, stream: str) -> Iterable[tuple[str, int]]:
    """Return what durable consumers of others have not acknowledged; a host could make one that bears a name of ours."""
    return [
        (f"consumer {info['name']}", int(info["ack_floor"]["stream_seq"]) + 1)
        for info in await consumers_of(connection, stream)
        if not _OURS.fullmatch(info["name"])
        and info["config"].get("durable_name")
        and info["config"].get("ack_policy", "none") != "none"
        and (info.get("num_pending") or info.get("num_ack_pending"))
    ]


async def committed_until(connection: Connection, info: Mapping[str, Any], partition: int) -> int:
    """Return the sequence below which a partition is committed, 0 where nobody can tell; raises as `needed`.

    An offset of another stream, or one that a person has moved and no receiver has used yet, says nothing of this one.
    """
    key = f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}"
    entry = await _message(connection, f"KV_{OFFSETS_BUCKET}", {"last_by_subj": key})
    try:
        offset = Offset.decode(base64.b64decode(entry.get("data", ""))) if entry else None
    except UnreadableOffset:
        return 0
    if offset is None or offset.moved_in or not offset.last_time:
        return 0
    ends = {one.created: one.until for one in ancestors(info["config"])}
    ends[info["created"]] = int(info["state"]["last_seq"]) + 1
    end = ends.get(offset.stream_created, 0)
    if offset.next > end:
        return end if offset.stream_created != info["created"] else 0
    return offset.next if await _is_as_committed(connection, info, offset) else 0


async def _is_as_committed(connection: Connection, info: Mapping[str, Any], offset: Offset) -> bool:
    """Whether the last committed message is still the one with that number: a stream that lost its end gives numbers again."""
    body = {"seq": offset.next - 1}
    message = await _message(connection, info["config"]["name"], body)
    if message is None:
        return True  # purged, as most that is committed
    apart = datetime.fromisoformat(message["time"]) - datetime.fromisoformat(offset.last_time)
    return abs(apart) < _ROUNDED


async def _message(
    connection: Connection, stream: str, body: Mapping[str, Any]
) -> dict[str, Any] | None:
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", body)
    except Rejected as error:
        if error.error != _NO_MESSAGE_FOUND:
            raise
        return None
    message: dict[str, Any] = answer["message"]
    return message
