"""The status of the partitions as one document, of which `status` and `offsets show` print their part.

What KV and the stream know is asked of the broker; what only the owner knows, of the owner, if it lives.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from broker.app.exits import OperatorError
from broker.app.untrusted import json_object
from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Denied, Rejected
from broker.client.partitions import existing_partitions, require_layout
from broker.client.patience import ELECTION, until_answered
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import (
    OFFSETS_BUCKET,
    offset_key,
)
from broker.wire.subjects import partition_filter
from receiver.driver.presence import report_of
from receiver.settings import ReceiverSettings
from receiver.status.hosts import HostFile, HostGaps

__all__ = [
    "Blockade",
    "PartitionStatus",
    "Status",
    "ask",
    "gather",
    "waiting",
]

Answer = TypeVar("Answer")

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

    Its stream holds the sequences `[first, until)`. `behind` is in messages, `behind_bytes` about what these take in the
    stream, `behind_seconds` the age of the oldest of them. The rates are over about ten seconds, `batch_seconds` is the mean
    of the last stay; they come from the owner, as does `blocked`. `error` says why the offset cannot be read.
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
    first: int
    until: int
    behind: int
    behind_bytes: int
    behind_seconds: float | None
    lines_per_second: float | None = None
    bytes_per_second: float | None = None
    batch_seconds: float | None = None
    blocked: Blockade | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The partitions, and the received files as far as this machine can read their stores, which are in `state_dir`."""

    partitions: Sequence[PartitionStatus]
    state_dir: Path
    files: Sequence[HostFile]
    gaps: Sequence[HostGaps]


def ask(
    settings: ReceiverSettings,
    program: str,
    work: Callable[[Connection], Awaitable[Answer]],
    patience: float = ELECTION,
) -> Answer:
    """Do something at the broker, again for `patience` seconds while a leader is elected.

    Raises `BrokerAway`, OperatorError when the broker refuses or does not answer.
    """

    async def connected() -> Answer:
        connection = Connection(settings.server, program, access=settings.access)
        try:
            await connection.once()
            return await until_answered(connection, work, patience)
        except Denied as error:
            raise OperatorError(error.description) from None
        except Rejected as error:
            raise OperatorError(f"the broker refuses: {error}; run `logbroker apply`") from None
        except ConnectionLost as error:
            raise OperatorError(
                f"the broker at {connection.servers} does not answer: {error}"
            ) from None
        finally:
            await connection.close()

    return asyncio.run(connected())


async def gather(
    connection: Connection, now: datetime, wanted: Callable[[int], Iterable[int]] = range
) -> list[PartitionStatus]:
    """Ask the broker, and the owners, about those `wanted` of so many partitions: also of those that hosts have left."""
    layout = await require_layout(connection)
    number = layout.partitions
    with suppress(Rejected):  # else the rights do not suffice to ask
        number = max(number, await existing_partitions(connection))
    chosen = wanted(number)
    names = sorted(set(map(layout.stream_of, chosen)))
    infos = await asyncio.gather(*(connection.api(f"STREAM.INFO.{name}") for name in names))
    states = {name: info["state"] for name, info in zip(names, infos, strict=True)}
    streams = {number: layout.stream_of(number) for number in chosen}
    found = (_partition(connection, n, name, states[name], now) for n, name in streams.items())
    return [*await asyncio.gather(*found)]


async def _partition(
    connection: Connection, partition: int, name: str, stream: dict[str, Any], now: datetime
) -> PartitionStatus:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    offset, error = _UNCLAIMED, None
    try:
        offset = Offset.decode(entry.value) if entry else _UNCLAIMED
    except UnreadableOffset as unreadable:
        error = f"{unreadable}{await _last_readable(connection, partition)}"
    left = await waiting(connection, name, partition, offset.next)
    report = await report_of(connection, offset.presence) if offset.presence else None
    return PartitionStatus(
        partition=partition,
        next=offset.next,
        epoch=offset.epoch,
        owner=offset.owner,
        running=_is_running(offset, report),
        lines=offset.lines,
        size=offset.size,
        last_time=offset.last_time,
        committed_at=offset.committed_at,
        first=stream["first_seq"],
        until=stream["last_seq"] + 1,
        behind=left,
        behind_bytes=left * stream["bytes"] // max(stream["messages"], 1),
        behind_seconds=await _lag(connection, name, partition, offset.next, now) if left else 0.0,
        **_live(report, partition),
        error=error,
    )


def _is_running(offset: Offset, report: bytes | None) -> bool | None:
    if offset.epoch == 0 or offset.is_moved or offset.released:
        return False
    return report is not None if offset.presence else None


async def waiting(connection: Connection, stream: str, partition: int, sequence: int) -> int:
    """Return how many messages of a partition its stream holds from a sequence on; raises `Rejected`, `ConnectionLost`."""
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
        f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}
    )
    await connection.api(f"CONSUMER.DELETE.{stream}.{answer['name']}")
    return int(answer["num_pending"])


async def _lag(
    connection: Connection, stream: str, partition: int, sequence: int, now: datetime
) -> float | None:
    """Return the age of the first message of a partition from a sequence on."""
    request = {"seq": max(sequence, 1), "next_by_subj": partition_filter(partition)}
    try:
        found = await connection.api(f"STREAM.MSG.GET.{stream}", request)
    except Rejected as error:
        if error.error == _NO_MESSAGE:
            return None
        raise
    stored = datetime.fromisoformat(found["message"]["time"])
    return max(0.0, round((now - stored).total_seconds(), 3))


def _live(report: bytes | None, partition: int) -> dict[str, Any]:
    """Return what an owner says of a partition; one of an earlier version, or of another program, says nothing."""
    match json_object(report or b""):
        case {"partitions": {**partitions}} if isinstance(
            told := partitions.get(str(partition)), dict
        ):
            known = ("lines_per_second", "bytes_per_second", "batch_seconds")
            numbers = {name: told.get(name) for name in known}
            return {
                name: value if isinstance(value, int | float) else None
                for name, value in numbers.items()
            } | {"blocked": _blockade(told.get("blocked"))}
        case _:
            return {}


def _blockade(value: object) -> Blockade | None:
    match value:
        case {"cause": str(cause), "detail": str(detail), "since": str(since)}:
            return Blockade(cause, detail, since)
        case _:
            return None


async def _last_readable(connection: Connection, partition: int) -> str:
    """Return a sentence about the newest offset of a partition that the bucket has and that can be read."""
    for one in reversed(await bucket.history(connection, OFFSETS_BUCKET, offset_key(partition))):
        with suppress(UnreadableOffset):
            offset = Offset.decode(one.value)
            return (
                f"; at {one.time} it was {offset.next}, in epoch {offset.epoch} of {offset.owner}"
            )
    return ""
