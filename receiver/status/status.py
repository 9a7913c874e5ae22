"""The status of partitions, tables and received files: one document, printed as text or as JSON.

KV and the streams have offsets and what waits; a running owner answers with what only it knows; the
stores on this machine have the files.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from nats_logship.app.table import show, table
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import to_datetime
from nats_logship.app.units import format_duration, format_size
from nats_logship.client import bucket
from nats_logship.client.answer import Denied
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.client.stream_reader import StreamReader, at_sequence
from nats_logship.client.table_status import TableStatus
from nats_logship.client.tables import collect_tables
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, StreamLayout, offset_key
from nats_logship.wire.subjects import count_name, partition_filter
from receiver.driver.partitions import request_partition_count
from receiver.driver.standby import request_report
from receiver.meter import REPORTS, PartitionReport
from receiver.storage.damage import Damaged
from receiver.storage.store import Store

_UNCLAIMED = Offset(0, 0, "", "")
_RUNNING = {True: "yes", False: "no", None: "?"}
_HEAD = (
    *("partition", "offset", "behind", "oldest", "lines", "bytes", "lines/s", "epoch", "running"),
    *("owner", "committed"),
)
_LESS = "epoch", "bytes", "offset", "lines", "committed", "lines/s"  # on a narrow terminal


class ReceivedPartition(PartitionReport):
    """A partition; None for what is not known.

    `behind` is how many messages wait, `behind_seconds` the age of the oldest. The rate is that of
    the last session. `running` is whether the owner has answered. `error` says why the offset
    cannot be read.
    """

    partition: int
    offset: int = Field(0, validation_alias="next")
    epoch: int = 0
    owner: str = ""
    running: bool | None = False
    lines: int = 0
    bytes: int = Field(0, validation_alias="size")
    committed_at: str = ""
    behind: int | None = 0
    behind_seconds: float | None = 0.0
    error: str | None = None

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        seconds = self.behind_seconds
        owner = ", standby: ".join((self.owner or "nobody yet", *self.standby))
        oldest = "?" if seconds is None else format_duration(timedelta(seconds=round(seconds)))
        return (
            str(self.partition),
            str(self.offset),
            "?" if self.behind is None else str(self.behind),
            oldest,
            f"{self.lines:,}",
            f"{self.bytes:,}",
            "" if self.lines_per_second is None else f"{self.lines_per_second:,.0f}",
            str(self.epoch),
            "starting" if self.starting else _RUNNING[self.running],
            "UNREADABLE" if self.error else owner,
            self.committed_at or "never",
        )


class HostFile(BaseModel):
    """A live file, by its path below the output folder, with its closed segments.

    `last_line` is when its last line was stored (RFC 3339), empty if it has none. `size` is bytes
    on disk, with the closed `segments`, which is how many there are.
    """

    path: str
    last_line: str
    size: int
    segments: int


class Status(BaseModel):
    """The partitions, the tables, and the received files by the stores in `state_dir`."""

    partitions: Sequence[ReceivedPartition]
    tables: Sequence[TableStatus] = ()
    state_dir: Path | None = None
    files: Sequence[HostFile] = ()

    def with_stores(self, state: Path) -> "Status":
        """Return the status with the files of all stores in a folder that can be read."""
        files = list[HostFile]()
        for path in sorted(state.glob("p*.db")):
            with suppress(OSError, Damaged), Store(path) as store:
                for row in store.list_sizes():
                    named = zip(HostFile.model_fields, row, strict=True)
                    files.append(HostFile.model_validate(dict(named)))
        files.sort(key=lambda file: file.path)
        return self.model_copy(update={"state_dir": state, "files": files})

    def show(self, *, with_hosts: bool = False) -> None:
        """Print the status as tables."""
        _show_table(_HEAD, [one.row() for one in self.partitions], _LESS)
        for one in self.partitions:
            if why := one.blocked:
                reason = f"{why.cause}: {why.detail}"
                show("", f"partition {one.partition} is blocked since {why.since}, {reason}")
            if one.error:
                show("", f"partition {one.partition} cannot be received: {one.error}")
        for known in self.tables:
            show("", f"table {known.text()}")
        if files := self.files:
            size = format_size(sum(file.size for file in files))
            closed = sum(file.segments for file in files)
            live = f"{format_count(len(files), 'live file', form=',')}, {closed:,} closed, {size}"
            show("", f"stores in {self.state_dir}: {live}")
        elif self.state_dir and not self.state_dir.is_dir():
            show("", f"there is no {self.state_dir}, so no files are shown; see --output")
        if with_hosts and files:
            rows = [(f.path, f.last_line or "none", f"{f.size:,}", str(f.segments)) for f in files]
            show("")
            _show_table(("file", "last line", "bytes", "closed"), rows, ("closed", "bytes"))


def _show_table(head: Sequence[str], rows: Sequence[Sequence[str]], less: Sequence[str]) -> None:
    show(table(head, rows, range(len(head)), less))


async def collect_status(connection: Connection, now: datetime) -> Status:
    """Ask the broker and the owners about all partitions and tables.

    Raises `Rejected`, `ConnectionLost`, `ConfigurationError`.
    """
    layout = await require_layout(connection)
    partitions, tables = await asyncio.gather(
        _collect_all(connection, layout, now), collect_tables(connection, layout.names)
    )
    return Status(partitions=partitions, tables=tables)


async def collect_partitions(
    connection: Connection, now: datetime, select: Callable[[int], Iterable[int]] = range
) -> list[ReceivedPartition]:
    """Ask the broker and the owners about the partitions that `select` chooses of their number."""
    return await _collect_all(connection, await require_layout(connection), now, select)


async def _collect_all(
    connection: Connection,
    layout: StreamLayout,
    now: datetime,
    select: Callable[[int], Iterable[int]] = range,
) -> list[ReceivedPartition]:
    chosen = select(await request_partition_count(connection, layout))
    found = (_collect(connection, n, layout.stream_of(n), now) for n in chosen)
    return [*await asyncio.gather(*found)]


async def _collect(
    connection: Connection, partition: int, stream: str, now: datetime
) -> ReceivedPartition:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    offset, error = _UNCLAIMED, None
    try:
        offset = Offset.decode(entry.value) if entry else _UNCLAIMED
    except UnreadableOffset as unreadable:
        error = str(unreadable)
    left = age = None
    with suppress(Denied):  # a receiver of single partitions has rights to these only
        left = await count_waiting(connection, stream, partition, offset.next)
        age = await _find_age(connection, stream, partition, offset.next, now) if left else 0.0
    answer = await request_report(connection, offset.presence) if offset.presence else None
    report = PartitionReport()
    with suppress(ValidationError):  # another program has answered at the owner's address
        report = REPORTS.validate_json(answer or b"{}").get(partition, report)
    is_owned = offset.epoch > 0 and not offset.is_moved and not offset.released
    is_running = answer is not None if offset.presence else None
    return ReceivedPartition.model_validate(
        asdict(offset)
        | report.model_dump()
        | {
            "partition": partition,
            "running": is_running if is_owned else False,
            "behind": left,
            "behind_seconds": age,
            "error": error,
        }
    )


async def count_waiting(connection: Connection, stream: str, partition: int, sequence: int) -> int:
    """Return how many messages of a partition its stream has from a sequence on.

    Raises `Rejected`, `ConnectionLost`.
    """
    reader = StreamReader(
        connection,
        stream,
        name=count_name(partition),
        filters=(partition_filter(partition),),
        headers_only=True,
        lives=5,
    )
    return await reader.count(at_sequence(sequence))


async def _find_age(
    connection: Connection, stream: str, partition: int, sequence: int, now: datetime
) -> float | None:
    """Return the age of the first message of a partition from a sequence on."""
    request = {"seq": max(sequence, 1), "next_by_subj": partition_filter(partition)}
    if (found := await find_message(connection, stream, request)) is None:
        return None
    stored = to_datetime(found.stored_at)
    return max(0.0, round((now - stored).total_seconds(), 3))
