"""Asks the broker what receivers have: their offsets, and what other consumers still hold. Decides nothing.

Offsets are read from the leader of their stream: a replica that lags may not know yet that a person has moved one back.
"""

import asyncio
import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.client.connection import Connection, Rejected
from broker.client.partitions import existing_partitions
from broker.keeping.room_received import Frontier, Received, frontier, holds
from broker.provision.apply import consumers_of
from broker.wire.descent import ancestors
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from broker.wire.subjects import consumer_name

__all__ = ["State", "ask", "ask_offsets"]

_KEY = re.compile(rf"\$KV\.{OFFSETS_BUCKET}\.p(0|[1-9][0-9]{{0,5}})")
_AT_ONCE = 32
_NO_MESSAGE_FOUND = 10037


@dataclass(frozen=True, slots=True)
class State:
    """What receivers have, and which partitions have messages that theirs has not."""

    received: Received
    behind: tuple[int, ...]


async def ask(connection: Connection, info: Mapping[str, Any]) -> State:
    """Return what is received of the stream that STREAM.INFO tells of; raises `Rejected`, `ConnectionLost`."""
    frontiers = await ask_offsets(connection, info)
    partitions = range(await existing_partitions(connection))
    consumers = await consumers_of(connection)
    return State(
        Received(frontiers, holds(consumers, partitions)),
        _behind(consumers, partitions),
    )


def _behind(consumers: Sequence[Mapping[str, Any]], partitions: range) -> tuple[int, ...]:
    waiting = {
        one["name"]: int(one.get("num_pending", 0)) + int(one.get("num_ack_pending", 0))
        for one in consumers
    }
    return tuple(n for n in partitions if waiting.get(consumer_name(n), 1))


async def ask_offsets(connection: Connection, info: Mapping[str, Any]) -> dict[int, Frontier]:
    """Return how far each partition is received, where anybody has; raises `Rejected`, `ConnectionLost`."""
    answer = await connection.api(
        f"STREAM.INFO.KV_{OFFSETS_BUCKET}", {"subjects_filter": f"$KV.{OFFSETS_BUCKET}.>"}
    )
    subjects = answer["state"].get("subjects") or {}
    partitions = [int(found[1]) for key in subjects if (found := _KEY.fullmatch(key))]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(partition: int) -> Frontier | None:
        async with gate:
            offset = await _offset(connection, partition)
        until = int(info["state"]["last_seq"]) + 1
        return frontier(partition, offset, info["created"], until, ancestors(info["config"]))

    frontiers = await asyncio.gather(*map(one, partitions))
    return {reached.partition: reached for reached in frontiers if reached is not None}


async def _offset(connection: Connection, partition: int) -> Offset | None:
    subject = f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}"
    try:
        answer = await connection.api(
            f"STREAM.MSG.GET.KV_{OFFSETS_BUCKET}", {"last_by_subj": subject}
        )
        return Offset.decode(base64.b64decode(answer["message"].get("data", "")))
    except UnreadableOffset:
        return None  # deleted, or of a later version: nobody can tell what is received
    except Rejected as error:
        if error.error != _NO_MESSAGE_FOUND:
            raise
        return None
