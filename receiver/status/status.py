"""The status of the partitions and of the received files: one document, printed as tables for people or as JSON.

The broker is asked for what KV and the stream know, a living owner for what it alone knows, the stores for files.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nats_logship.app.table import show, table
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import to_datetime
from nats_logship.app.units import format_duration, format_size
from nats_logship.client import bucket
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.client.stream_reader import StreamReader, at_sequence
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from nats_logship.wire.subjects import partition_filter
from receiver.driver.partitions import request_partition_count
from receiver.driver.presence import request_report
from receiver.meter import REPORTS, PartitionReport
from receiver.storage.damage import Damaged
from receiver.storage.store import Store

_UNCLAIMED = Offset(0, 0, "", "")
_RUNNING = {True: "yes", False: "no", None: "?"}
_HEAD = (
    *("partition", "next", "behind", "oldest", "lines", "bytes", "lines/s"),
    *("epoch", "running", "owner", "last commit"),
)


class ReceivedPartition(PartitionReport):
    """A partition; what is None is not known.

    `behind` is in messages, `behind_seconds` the age of the oldest of them. The rate is that of the last task; it comes from
    the owner, as does `blocked`. `error` says why the offset cannot be read.
    """

    partition: int
    next: int = 0
    epoch: int = 0
    owner: str = ""
    running: bool | None = False
    lines: int = 0
    size: int = 0
    committed_at: str = ""
    behind: int = 0
    behind_seconds: float | None = 0.0
    error: str | None = None

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        seconds = self.behind_seconds
        owner = ", standby: ".join((self.owner or "nobody yet", *self.standby))
        oldest = "?" if seconds is None else format_duration(timedelta(seconds=round(seconds)))
        return (
            *(str(self.partition), str(self.next), str(self.behind), oldest),
            *(f"{self.lines:,}", f"{self.size:,}"),
            "" if self.lines_per_second is None else f"{self.lines_per_second:,.0f}",
            str(self.epoch),
            "starting" if self.starting else _RUNNING[self.running],
            "UNREADABLE" if self.error else owner,
            self.committed_at or "never",
        )


class HostFile(BaseModel):
    """A live file by its path below the output folder, with its closed segments.

    `last_line` is when its last line was stored (RFC 3339), empty when there is none; `size` is in bytes on the disk, of
    all its files, `segments` how many of them are closed.
    """

    path: str
    last_line: str
    size: int
    segments: int


class Status(BaseModel):
    """The partitions, and the received files as far as this machine can read their stores, which are in `state_dir`."""

    partitions: Sequence[ReceivedPartition]
    state_dir: Path | None = None
    files: Sequence[HostFile] = ()

    @classmethod
    def with_stores(cls, partitions: Sequence[ReceivedPartition], state: Path) -> "Status":
        """Return the status with what the stores of a folder say; one that cannot be read says nothing."""
        files = list[HostFile]()
        for path in sorted(state.glob("p*.db")):
            with suppress(OSError, Damaged), Store(path) as store:
                for row in store.list_sizes():
                    named = zip(HostFile.model_fields, row, strict=True)
                    files.append(HostFile.model_validate(dict(named)))
        files.sort(key=lambda file: file.path)
        return cls(partitions=partitions, state_dir=state, files=files)

    def show(self, *, with_hosts: bool = False) -> None:
        """Write it to standard output, for people."""
        _show_table(_HEAD, [one.row() for one in self.partitions])
        for one in self.partitions:
            if why := one.blocked:
                words = f"is blocked since {why.since}, {why.cause}: {why.detail}"
                show("", f"partition {one.partition} {words}")
            if one.error:
                show("", f"partition {one.partition} cannot be received: {one.error}")
        if files := self.files:
            size = format_size(sum(file.size for file in files))
            closed = sum(file.segments for file in files)
            live = f"{format_count(len(files), 'live file', form=',')}, {closed:,} closed, {size}"
            show("", f"stores in {self.state_dir}: {live}")
        if with_hosts and files:
            rows = [(f.path, f.last_line or "none", f"{f.size:,}", str(f.segments)) for f in files]
            show("")
            _show_table(("file", "last line", "bytes", "closed"), rows)


def _show_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    show(table(head, rows, left=range(len(head))))


async def gather(
    connection: Connection, now: datetime, wanted: Callable[[int], Iterable[int]] = range
) -> list[ReceivedPartition]:
    """Ask the broker, and the owners, about those `wanted` of so many partitions: also of those that hosts have left."""
    layout = await require_layout(connection)
    chosen = wanted(await request_partition_count(connection, layout))
    found = (_partition(connection, n, layout.stream_of(n), now) for n in chosen)
    return [*await asyncio.gather(*found)]


async def _partition(
    connection: Connection, partition: int, stream: str, now: datetime
) -> ReceivedPartition:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    offset, error = _UNCLAIMED, None
    try:
        offset = Offset.decode(entry.value) if entry else _UNCLAIMED
    except UnreadableOffset as unreadable:
        error = str(unreadable)
    left = await waiting(connection, stream, partition, offset.next)
    answer = await request_report(connection, offset.presence) if offset.presence else None
    told = PartitionReport()
    with suppress(ValidationError):  # another program at the owner's address says nothing
        told = REPORTS.validate_json(answer or b"{}").get(partition, told)
    is_owned = offset.epoch > 0 and not offset.is_moved and not offset.released
    is_running = answer is not None if offset.presence else None
    age = await _age(connection, stream, partition, offset.next, now) if left else 0.0
    return ReceivedPartition.model_validate(
        asdict(offset)
        | told.model_dump()
        | {
            "partition": partition,
            "running": is_running if is_owned else False,
            "behind": left,
            "behind_seconds": age,
            "error": error,
        }
    )


async def waiting(connection: Connection, stream: str, partition: int, sequence: int) -> int:
    """Return how many messages of a partition its stream holds from a sequence on; raises `Rejected`, `ConnectionLost`."""
    reader = StreamReader(
        connection,
        stream,
        name=f"status-{secrets.token_hex(8)}",
        filters=(partition_filter(partition),),
        headers_only=True,
        lives=5,
    )
    return await reader.count(at_sequence(sequence))


async def _age(
    connection: Connection, stream: str, partition: int, sequence: int, now: datetime
) -> float | None:
    """Return the age of the first message of a partition from a sequence on."""
    request = {"seq": max(sequence, 1), "next_by_subj": partition_filter(partition)}
    if (found := await find_message(connection, stream, request)) is None:
        return None
    stored = to_datetime(found.stored_at)
    return max(0.0, round((now - stored).total_seconds(), 3))
