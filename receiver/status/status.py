"""The status of the partitions and of the received files: one document, printed as tables for people or as JSON.

What KV and the stream know is asked of the broker; what only the owner knows, of the owner, if it lives; what is known of
files, of the stores in the state folder.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from broker.app.exits import OperatorError
from broker.app.table import aligned
from broker.app.units import format_duration, format_size
from broker.app.untrusted import json_object, printable
from broker.client import bucket
from broker.client.config import existing_partitions, require_layout
from broker.client.connection import (
    ELECTION,
    Connection,
    ConnectionLost,
    Denied,
    Rejected,
    until_answered,
)
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, StreamLayout, offset_key
from broker.wire.subjects import partition_filter
from receiver.driver.presence import report_of
from receiver.settings import ReceiverSettings
from receiver.storage.position import Damaged
from receiver.storage.store import Store
from receiver.storage.tables import missing

__all__ = [
    "Blockade",
    "HostFile",
    "HostGaps",
    "ReceivedPartition",
    "Status",
    "ask",
    "files_in",
    "gaps_in",
    "gather",
    "partitions_json",
    "partitions_table",
    "partitions_there",
    "status_json",
    "status_table",
    "waiting",
]

Answer = TypeVar("Answer")

_NO_MESSAGE = 10037
_UNCLAIMED = Offset(0, 0, "", "")
_RUNNING = {True: "yes", False: "no", None: "?"}
_FILES = """
SELECT path, last_line, length + coalesce(closed, 0), coalesce(count, 0) FROM files LEFT JOIN (
  SELECT live, sum(size) AS closed, count(*) AS count FROM segments WHERE path != live GROUP BY live
) ON live = path WHERE length NOT NULL AND host != ''
"""


@dataclass(frozen=True, slots=True)
class Blockade:
    """Why a partition cannot go on, and since when (RFC 3339)."""

    cause: str
    detail: str
    since: str


@dataclass(frozen=True, slots=True)
class ReceivedPartition:
    """A partition; what is None is not known.

    Its stream holds the sequences `[first, until)`. `behind` is in messages, `behind_bytes` about what these take in the
    stream, `behind_seconds` the age of the oldest of them. The rates are over about ten seconds, `batch_seconds` is the mean
    of the last session; they come from the owner, as does `blocked`. `error` says why the offset cannot be read.
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
class HostFile:
    """A live file by its path below the output folder, with its closed segments.

    `last_line` is when its last line was stored (RFC 3339), empty when there is none; `size` is in bytes on the disk, of
    all its files, `segments` how many of them are closed.
    """

    path: str
    last_line: str
    size: int
    segments: int


@dataclass(frozen=True, slots=True)
class HostGaps:
    """What never came of a host's files; `size` is in bytes of those files."""

    host: str
    gaps: int
    size: int


@dataclass(frozen=True, slots=True)
class Status:
    """The partitions, and the received files as far as this machine can read their stores, which are in `state_dir`."""

    partitions: Sequence[ReceivedPartition]
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
) -> list[ReceivedPartition]:
    """Ask the broker, and the owners, about those `wanted` of so many partitions: also of those that hosts have left."""
    layout = await require_layout(connection)
    chosen = wanted(await partitions_there(connection, layout))
    names = sorted(set(map(layout.stream_of, chosen)))
    infos = await asyncio.gather(*(connection.api(f"STREAM.INFO.{name}") for name in names))
    states = {name: info["state"] for name, info in zip(names, infos, strict=True)}
    streams = {number: layout.stream_of(number) for number in chosen}
    found = (_partition(connection, n, name, states[name], now) for n, name in streams.items())
    return [*await asyncio.gather(*found)]


async def partitions_there(connection: Connection, layout: StreamLayout) -> int:
    """Return how many partitions there are, with those that hosts have left where the rights suffice to ask."""
    with suppress(Rejected):
        return max(layout.partitions, await existing_partitions(connection))
    return layout.partitions


async def _partition(
    connection: Connection, partition: int, name: str, stream: dict[str, Any], now: datetime
) -> ReceivedPartition:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    offset, error = _UNCLAIMED, None
    try:
        offset = Offset.decode(entry.value) if entry else _UNCLAIMED
    except UnreadableOffset as unreadable:
        error = str(unreadable)
    left = await waiting(connection, name, partition, offset.next)
    report = await report_of(connection, offset.presence) if offset.presence else None
    return ReceivedPartition(
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
            found := partitions.get(str(partition)), dict
        ):
            known = ("lines_per_second", "bytes_per_second", "batch_seconds")
            numbers = {name: found.get(name) for name in known}
            return {
                name: value if isinstance(value, int | float) else None
                for name, value in numbers.items()
            } | {"blocked": _blockade(found.get("blocked"))}
        case _:
            return {}


def _blockade(value: object) -> Blockade | None:
    match value:
        case {"cause": str(cause), "detail": str(detail), "since": str(since)}:
            return Blockade(cause, detail, since)
        case _:
            return None


def files_in(state: Path) -> list[HostFile]:
    """Return the files of all hosts, by path; a store that cannot be read has none."""
    found = [
        HostFile(str(path), _rfc3339(int(str(moment))), int(str(size)), int(str(segments)))
        for rows in _each(state, lambda store: store.rows(_FILES))
        for path, moment, size, segments in rows
    ]
    return sorted(found, key=lambda file: file.path)


def gaps_in(state: Path) -> list[HostGaps]:
    """Return what never came, by host; a store that cannot be read says nothing."""
    gaps, sizes = Counter[str](), Counter[str]()
    for found in _each(state, missing):
        gaps.update({host: one.gaps for host, one in found.items()})
        sizes.update({host: one.size for host, one in found.items()})
    return [HostGaps(host, gaps[host], sizes[host]) for host in sorted(gaps)]


def _each(state: Path, look: Callable[[Store], Answer]) -> Iterator[Answer]:
    for path in sorted(state.glob("p*.db")):
        with suppress(OSError, Damaged), Store(path) as store:
            yield look(store)


def _rfc3339(moment: int) -> str:
    if not moment:
        return ""
    stored = datetime.fromtimestamp(moment // 1_000_000_000, UTC)
    return stored.isoformat().replace("+00:00", "Z")


def status_json(status: Status) -> str:
    """Write the status for programs; the keys are the field names, and stay."""
    return json.dumps({**asdict(status), "state_dir": str(status.state_dir)}, indent=2)


def partitions_json(partitions: Sequence[ReceivedPartition]) -> str:
    """Write the status of partitions for programs, as it stands in that of all."""
    return json.dumps({"partitions": list(map(asdict, partitions))}, indent=2)


def partitions_table(partitions: Sequence[ReceivedPartition]) -> str:
    """Write the status of partitions for people."""
    head = (
        *("partition", "next", "behind", "oldest", "lines", "bytes", "lines/s", "batch"),
        *("epoch", "running", "owner", "last commit"),
    )
    rows = _columns([head, *map(_status_row, partitions)])
    return "\n\n".join(filter(None, (rows, "\n".join(_troubles(partitions)))))


def status_table(status: Status, *, with_hosts: bool) -> str:
    """Write the status for people."""
    parts = [partitions_table(status.partitions)]
    if files := status.files:
        size = format_size(sum(file.size for file in files))
        closed = sum(file.segments for file in files)
        parts.append(
            f"stores in {status.state_dir}: {len(files):,} live files, {closed:,} closed, {size}"
        )
    if with_hosts and files:
        rows = [(f.path, f.last_line or "none", f"{f.size:,}", str(f.segments)) for f in files]
        parts.append(_columns([("file", "last line", "bytes", "closed"), *rows]))
    if status.gaps:
        gaps = [(gap.host, str(gap.gaps), f"{gap.size:,}") for gap in status.gaps]
        parts.append(_columns([("host", "gaps", "bytes that never came"), *gaps]))
    return "\n\n".join(parts)


def _status_row(p: ReceivedPartition) -> tuple[str, ...]:
    seconds = p.behind_seconds
    oldest = "?" if seconds is None else format_duration(timedelta(seconds=round(seconds)))
    return (
        *(str(p.partition), str(p.next), str(p.behind), oldest, f"{p.lines:,}", f"{p.size:,}"),
        "" if p.lines_per_second is None else f"{p.lines_per_second:,.0f}",
        "" if p.batch_seconds is None else f"{p.batch_seconds * 1000:.0f} ms",
        str(p.epoch),
        _RUNNING[p.running],
        "UNREADABLE" if p.error else p.owner or "nobody yet",
        p.committed_at or "never",
    )


def _troubles(partitions: Sequence[ReceivedPartition]) -> list[str]:
    blocked = [
        f"partition {p.partition} is blocked since {p.blocked.since}, {p.blocked.cause}: {p.blocked.detail}"
        for p in partitions
        if p.blocked
    ]
    unreadable = [
        f"partition {p.partition} cannot be received: {p.error}" for p in partitions if p.error
    ]
    return [printable(line) for line in (*blocked, *unreadable)]


def _columns(rows: Sequence[Sequence[str]]) -> str:
    return aligned(rows[0], rows[1:], left=range(len(rows[0])))
