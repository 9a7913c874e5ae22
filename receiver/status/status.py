"""What a receiver's operator asks first: who owns each partition, how far behind it is, how fast it goes, and what stops it.

What KV and the stream know is asked of the broker; what only the owner knows, of the owner, if it lives.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.app.exits import OperatorError
from broker.app.untrusted import json_object
from broker.client import bucket
from broker.client.access import Access
from broker.client.connection import Connection, ConnectionLost, Denied, Rejected
from broker.client.patience import ELECTION, until_answered
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    STREAM,
    offset_key,
    partitions_in,
)
from broker.wire.subjects import partition_filter
from receiver.driver.presence import report_of
from receiver.status.offsets_view import waiting

__all__ = ["Blockade", "PartitionStatus", "gather"]

_NO_MESSAGE = 10037
_UNCLAIMED = Offset(0, 0, "", "")


@dataclass(frozen=True, slots=True)
class Blockade:
    """Why a partition cannot go on, and since when (RFC 3339)."""

    cause: str
    detail: str
    since: str


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition; what is None is not known.

    `waiting` is in messages, `lag_bytes` about what these take in the stream, `lag_seconds` the age of the oldest of
    them. The rates are over about ten seconds, `batch_seconds` is the mean of the last stay; they come from the owner, as
    does `blocked`. `error` says why the offset cannot be read.
    """

    partition: int
    next: int
    epoch: int
    owner: str
    running: bool | None
    lines: int
    size: int
    last_time: str
    committed_at: str
    waiting: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    lines_per_second: float | None = None
    bytes_per_second: float | None = None
    batch_seconds: float | None = None
    blocked: Blockade | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Asking:
    connection: Connection
    now: datetime
    bytes_a_message: float


async def gather(servers: Sequence[str], access: Access, now: datetime) -> list[PartitionStatus]:
    """Ask the broker, and the owners; raises `BrokerAway`, OperatorError when nothing has been set up there."""
    connection = Connection(servers, "logreceiver status", access=access)
    try:
        await connection.once()
        return await until_answered(connection, lambda c: _gather(c, now), ELECTION)
    except Denied as error:
        raise OperatorError(error.description) from None
    except Rejected as error:
        raise OperatorError(
            f"the broker has no logship stream and buckets ({error}); run `logbroker apply`"
        ) from None
    except ConnectionLost as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer: {error}"
        ) from None
    finally:
        await connection.close()


async def _gather(connection: Connection, now: datetime) -> list[PartitionStatus]:
    state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
    entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    asking = _Asking(connection, now, state["bytes"] / max(state["messages"], 1))
    count = partitions_in(entry.value if entry else None) or 0
    return [*await asyncio.gather(*(_partition(asking, number) for number in range(count)))]


async def _partition(asking: _Asking, partition: int) -> PartitionStatus:
    entry = await bucket.read(asking.connection, OFFSETS_BUCKET, offset_key(partition))
    offset, error = _UNCLAIMED, None
    try:
        offset = Offset.decode(entry.value) if entry else _UNCLAIMED
    except UnreadableOffset as unreadable:
        error = str(unreadable)
    left = await waiting(asking.connection, partition, offset.next)
    owner = await report_of(asking.connection, offset.presence) if offset.presence else None
    return PartitionStatus(
        partition,
        offset.next,
        offset.epoch,
        offset.owner,
        _is_running(offset, owner),
        offset.lines,
        offset.size,
        offset.last_time,
        offset.committed_at,
        left,
        int(left * asking.bytes_a_message),
        await _lag(asking, partition, offset.next) if left else 0.0,
        **_live(owner, partition),
        error=error,
    )


def _is_running(offset: Offset, report: bytes | None) -> bool | None:
    if offset.epoch == 0 or offset.is_moved or offset.released:
        return False
    return report is not None if offset.presence else None


async def _lag(asking: _Asking, partition: int, sequence: int) -> float | None:
    """Return the age of the first message of a partition from a sequence on."""
    request = {"seq": max(sequence, 1), "next_by_subj": partition_filter(partition)}
    try:
        found = await asking.connection.api(f"STREAM.MSG.GET.{STREAM}", request)
    except Rejected as error:
        if error.error == _NO_MESSAGE:
            return None
        raise
    stored = datetime.fromisoformat(found["message"]["time"])
    return max(0.0, round((asking.now - stored).total_seconds(), 3))


def _live(report: bytes | None, partition: int) -> dict[str, Any]:
    """Return what an owner says of a partition; one of an earlier version, or of another program, says nothing."""
    match json_object(report or b""):
        case {"partitions": {**partitions}} if isinstance(
            told := partitions.get(str(partition)), dict
        ):
            known = ("lines_per_second", "bytes_per_second", "batch_seconds")
            return {name: _number(told.get(name)) for name in known} | {
                "blocked": _blockade(told.get("blocked"))
            }
        case _:
            return {}


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def _blockade(value: object) -> Blockade | None:
    match value:
        case {"cause": str(cause), "detail": str(detail), "since": str(since)}:
            return Blockade(cause, detail, since)
        case _:
            return None
