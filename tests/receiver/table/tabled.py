"""A table for tests: write it as the program does, but without Spark; read it, and compare it.

    python -m tests.receiver.table.tabled URL FOLDER HOURS

writes it once in a process of its own, which a test may kill; the maintenance's clock is so many
hours ahead.
"""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
from deltalake import DeltaTable

from nats_logship.app.exits import OperatorError
from nats_logship.client import bucket
from nats_logship.client.access import Access
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import TableProgress, table_key
from receiver.driver.standby import ReceiverPresence
from receiver.table.claim import TableClaim
from receiver.table.columns import LINES
from receiver.table.compact import Group, merge_files
from receiver.table.gaps import GAPS
from receiver.table.location import Location
from receiver.table.log import Log
from receiver.table.maintenance import Maintenance
from receiver.table.meter import TableMeter
from receiver.table.parquet import File
from receiver.table.write import Broker, Range, Written, write_range
from receiver.table.writer import TableLimits, TableWriter
from tests.receiver.partition import Message, lines_of, message, publish
from tests.support.suite import ask

Source = tuple[str, str]
"""A host and a file of it."""


@dataclass
class Tabled:
    """A table of the streams at `url`, and what was published for it."""

    url: str
    location: Location
    sent: dict[Source, bytes] = field(default_factory=dict)
    access: Access = Access()  # noqa: RUF009 - a frozen value

    def ship(self, host: str, file: str, payload: bytes, **changes: Any) -> Message:
        """Return the message of a shipper with the next lines of a file below /var/log."""
        source = host, f"/var/log/{file}"
        before = self.sent.get(source, b"")
        self.sent[source] = before + payload
        section = lines_of(file, len(before), payload)
        return message(host, section, **changes)

    def publish(self, *messages: Message) -> int:
        return publish(self.url, *messages)

    def publish_some(self, count: int, tag: str = "") -> None:
        """Publish numbered lines of five hosts."""
        for number in range(count):
            text = f"2026-11-20T10:00:00Z INFO {tag} line {number}\n".encode() * 3
            self.publish(self.ship(f"web{number % 5:02d}", "a", text))

    def write(self, *, since: Any = 0, hours: int = 0, **limits: Any) -> TableMeter:
        """Write what waits, as `--once` does."""
        limits["access"] = self.access
        return asyncio.run(write_once(self.url, self.location, since, hours, **limits))

    @property
    def lines(self) -> DeltaTable:
        child = self.location.child("lines")
        return DeltaTable(child.root, storage_options=child.storage_options)

    def gaps(self) -> list[dict[str, Any]]:
        child = self.location.child("gaps")
        table = DeltaTable(child.root, storage_options=child.storage_options)
        known = [("kind", "in", ["removed", "unreadable"])]  # statistics must not hide rows
        return table.to_pyarrow_table(filters=known).to_pylist()

    def rows(self, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
        """Query by DuckDB."""
        lines = self.lines.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
        order = "ORDER BY stream, sequence, pos"
        return duckdb.sql(f"SELECT {columns} FROM lines WHERE {where} {order}").fetchall()

    def read_by_duckdb(self) -> dict[Source, bytes]:
        return _join(self.rows("host, file, line, raw, piece"))

    def read_by_polars(self) -> dict[Source, bytes]:
        child = self.location.child("lines")
        rows = (
            polars.scan_delta(child.root, storage_options=child.storage_options or None)
            .sort("stream", "sequence", "pos")
            .select("host", "file", "line", "raw", "piece")
            .collect()
        )
        return _join(rows.iter_rows())

    def has_each_line_once(self) -> None:
        """Both engines read the very bytes that were sent."""
        for found in (self.read_by_duckdb(), self.read_by_polars()):
            assert found == self.sent

    def progress(self) -> TableProgress | None:
        key = table_key(str(self.lines.metadata().id))
        entry = ask(self.url, lambda c: bucket.read(c, OFFSETS_BUCKET, key))
        return TableProgress.decode(entry.value) if entry else None


def _join(rows: Iterable[tuple[Any, ...]]) -> dict[Source, bytes]:
    """Return the bytes of each source, of rows in their order."""
    found: dict[Source, list[bytes]] = {}
    for host, file, line, raw, piece in rows:
        data = line.encode() if raw is None else raw
        found.setdefault((host, file or ""), []).append(data + (b"" if piece else b"\n"))
    return {source: b"".join(parts) for source, parts in found.items()}


async def write_once(
    url: str, location: Location, since: Any = 0, hours: int = 0, **changes: Any
) -> TableMeter:
    access = changes.setdefault("access", Access())
    connection = Connection([url], "tests table", access=access)
    try:
        writer = make_writer(connection, url, location, since, hours, **changes)
        await writer.run_once(asyncio.Event())
        return writer.meter
    finally:
        await connection.close()


def make_writer(
    connection: Connection,
    url: str,
    location: Location,
    since: Any = 0,
    hours: int = 0,
    *,
    presence: str = "",
    commit_bytes: int = 10**9,
    keep: timedelta = timedelta(),
    grace: timedelta = timedelta(hours=1),
    every: float = 0.1,
    access: Access = Access(),  # noqa: B008 - a frozen value
) -> TableWriter:
    """Return a writer whose tasks run in this process."""
    meter = TableMeter(lambda: 1, connection)
    lines, gaps = location.child("lines"), location.child("gaps")
    broker = Broker((url,), access)

    def read(ranges: Sequence[Range]) -> list[Written]:
        return [write_range(one, broker, lines, gaps) for one in ranges]

    def merge(groups: Sequence[Group]) -> list[tuple[Group, File | str]]:
        return [merge_files(one) for one in groups]

    return TableWriter(
        connection=connection,
        lines=Log(lines, LINES),
        gaps=Log(gaps, GAPS),
        claim=TableClaim(connection, "", location.root, "tests:1", presence),
        meter=meter,
        maintenance=Maintenance(
            meter=meter,
            merge=merge,
            tasks=2,
            keep=keep,
            grace=grace,
            clock=lambda: datetime.now(UTC) + timedelta(hours=hours),  # noqa: TID251
        ),
        run_tasks=read,
        limits=TableLimits(every, commit_bytes, 2),
        since=since,
    )


async def present(connection: Connection) -> ReceiverPresence:
    """Answer at an address, as a writer that is alive."""
    presence = ReceiverPresence(connection, lambda _: b"{}")
    await presence.start()
    return presence


if __name__ == "__main__":
    _, address, folder, ahead = sys.argv
    try:
        asyncio.run(write_once(address, Location(str(Path(folder))), hours=int(ahead)))
    except OperatorError as error:
        sys.exit(str(error))
