"""The claim of a table: an entry in KV, which names its only writer and keeps lines for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from nats_logship.app.exits import ConfigurationError, FencedError
from nats_logship.app.faults import fault
from nats_logship.client import bucket
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import (
    StreamProgress,
    TableProgress,
    UnreadableProgress,
    table_key,
)
from receiver.driver.standby import is_gone


@dataclass(slots=True)
class TableClaim:
    """The claim of `owner` on the table at `address`, whose id is `table_id`."""

    connection: Connection
    table_id: str
    address: str
    owner: str
    presence: str = ""
    once: bool = False
    progress: TableProgress = field(default_factory=lambda: TableProgress("", ""))
    _revision: int = 0

    @property
    def _at(self) -> tuple[Connection, str, str]:
        return self.connection, OFFSETS_BUCKET, table_key(self.table_id)

    async def claim(self) -> None:
        """Take the table, unless its writer is alive. Raises `ConfigurationError` if it is.

        Raises `Rejected`, `ConnectionLost`.
        """
        entry = await bucket.read(*self._at)
        found = _decode(entry)
        if found and found.presence != self.presence:  # ours, if the answer was lost
            await _require_gone(self.connection, found)
        before = found or TableProgress(self.address, self.owner, epoch=0)
        self._revision = entry.revision if entry else 0
        await self._write(
            msgspec.structs.replace(
                before,
                table=self.address,
                owner=self.owner,
                epoch=before.epoch + 1,
                presence=self.presence,
                released=False,
                once=self.once,
            )
        )
        fault("table_claimed")

    async def store(
        self, streams: Mapping[str, StreamProgress], *, rows: int, files: int, now: str
    ) -> None:
        """Write progress that is committed: retention may remove what is before it.

        The table has `rows` more, and so many files. Raises `FencedError` if another writer has
        claimed the table or a person has dropped it, `Rejected`, `ConnectionLost`.
        """
        await self._write(
            msgspec.structs.replace(
                self.progress,
                streams=dict(streams),
                rows=self.progress.rows + rows,
                files=files,
                committed_at=now,
            )
        )

    async def release(self) -> None:
        """Say that the writer has ended; raises as `store`."""
        await self._write(msgspec.structs.replace(self.progress, presence="", released=True))

    async def _write(self, progress: TableProgress) -> None:
        try:
            self._revision = await bucket.write(*self._at, progress.encode(), self._revision)
        except Conflict:
            await self._explain_conflict(progress)
        self.progress = progress

    async def _explain_conflict(self, progress: TableProgress) -> None:
        """Return if the entry is ours after all: the answer to an earlier write was lost."""
        entry = await bucket.read(*self._at)
        found = _decode(entry)
        if entry and found and (found.epoch, found.owner) == (progress.epoch, self.owner):
            self._revision = await bucket.write(*self._at, progress.encode(), entry.revision)
            return
        by = f"taken over by {found.owner}" if found else "dropped by `logreceiver table --forget`"
        raise FencedError(f"table {self.address} was {by}; this writer stops")


def _decode(entry: bucket.Entry | None) -> TableProgress | None:
    try:
        return TableProgress.decode(entry.value) if entry else None
    except UnreadableProgress:
        return None  # the table itself says how far it is


async def _require_gone(connection: Connection, found: TableProgress) -> None:
    is_owned = found.presence and not found.released
    if is_owned and not await is_gone(connection, found.presence):
        raise ConfigurationError(
            f"table {found.table} is written by {found.owner}: a table has one writer; "
            "stop that one first"
        )


async def forget(connection: Connection, table_id: str) -> bool:
    """Delete the entry of a table, and return whether there was one: nothing is kept for it now.

    Raises `ConfigurationError` if its writer is alive, `Rejected`, `ConnectionLost`.
    """
    key = table_key(table_id)
    entry = await bucket.read(connection, OFFSETS_BUCKET, key)
    if entry is None:
        return False
    if found := _decode(entry):
        await _require_gone(connection, found)
    headers = {"KV-Operation": "DEL"}
    await connection.ask(f"$KV.{OFFSETS_BUCKET}.{key}", b"", headers)
    return True
