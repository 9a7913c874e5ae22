"""A partition's entry in KV as its tasks use it: read under the partition's lock, then written.

Every write is a compare-and-set on the revision that was read last. Any other write in between,
such as another receiver's claim, makes the next write fail. A replica that lags may answer a read,
so the leader confirms the read before a step that cannot be undone.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from nats_logship.app.timestamps import format_datetime, format_time
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.wire.message import IMPOSSIBLE_SEQUENCE
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.assignment import Done

_TRIES, _PAUSE = 5, 0.1  # readings of an entry, which we may be writing; seconds between them
_LAST = re.compile(r"wrong last sequence: ([0-9]+)")


class StaleRead(ConnectionLost):
    """A replica that lags has answered: the entry is to be read again."""


@dataclass(eq=False)
class EntryTaken(Exception):
    """Somebody else has written the entry: it is `found` now, None if it was deleted."""

    found: Offset | None


@dataclass(slots=True)
class OffsetEntry:
    """The offset of a partition, unknown before `read`; `clock` gives the time of a commit."""

    connection: Connection
    partition: int
    clock: Callable[[], datetime]
    offset: Offset | None = None
    _revision: int = 0

    @property
    def _at(self) -> tuple[Connection, str, str]:
        return self.connection, OFFSETS_BUCKET, offset_key(self.partition)

    async def read(self, epoch: int = 0, first: int = 0) -> Offset | None:
        """Read the entry; `epoch` is known to have begun, and all before `first` to be committed.

        Raises `StaleRead` for a replica that has not come so far, `UnreadableOffset`, `Rejected`,
        `ConnectionLost`.
        """
        entry = await bucket.read(*self._at)
        self._revision = entry.revision if entry else 0
        self.offset = Offset.decode(entry.value) if entry else None
        if self.offset is None or (self.offset.epoch, self.offset.next) < (epoch, first):
            await confirm_entry(*self._at, entry)
        return self.offset

    async def commit(self, done: Done) -> None:
        """Write the offset behind a batch that is stored: from here on the batch is committed.

        Raises `EntryTaken`. After `Rejected` and `ConnectionLost` it is unknown whether the batch
        is committed; the next session reads the entry.
        """
        assert self.offset is not None, "the entry is read before anything is written"
        await self._write(
            replace(
                self.offset,
                next=done.until,
                lines=self.offset.lines + done.lines,
                size=self.offset.size + done.size,
                last_time=format_time(done.stored_at, "milliseconds"),
                committed_at=format_datetime(self.clock(), "milliseconds"),
                commit=done.commit_id,
                moved_in=0,
            )
        )

    async def fence(self) -> None:
        """Write the entry unchanged, so that a commit which an earlier attempt has sent fails.

        The write also proves that the newest entry was read. Raises as `commit` does.
        """
        assert self.offset is not None, "the entry is read before anything is undone"
        await self._write(self.offset)

    async def _write(self, offset: Offset) -> None:
        """Write the entry if its revision is still the one that was read: compare-and-set."""
        try:
            self._revision = await bucket.write(*self._at, offset.encode(), self._revision)
        except Conflict:
            raise EntryTaken(await read_newest(self.connection, self.partition)) from None
        self.offset = offset


async def read_newest(connection: Connection, partition: int) -> Offset | None:
    """Return a partition's offset as the leader confirms it, None for none.

    Raises `StaleRead` only if a replica goes on lagging, or the entry on being written.
    """
    at = connection, OFFSETS_BUCKET, offset_key(partition)
    for left in reversed(range(_TRIES)):
        entry = await bucket.read(*at)
        try:
            await confirm_entry(*at, entry)
            break
        except StaleRead:
            if not left:
                raise
            await asyncio.sleep(_PAUSE)
    return Offset.decode(entry.value) if entry else None


async def confirm_entry(
    connection: Connection, name: str, key: str, entry: bucket.Entry | None
) -> None:
    """Return if `entry` is the newest of its key (None: the key has none); else raise `StaleRead`.

    Sends a write that the leader always refuses, naming the last revision. It needs the right to
    write the key. Raises `Rejected`, `ConnectionLost`.
    """
    named = None
    try:
        await bucket.send_write(connection, name, key, b"", IMPOSSIBLE_SEQUENCE)
    except Rejected as error:
        if not error.is_conflict:
            raise
        named = _LAST.search(error.description)
    last = int(named[1]) if named else -1
    if entry is None and last > 0:
        found = await bucket.read_newest(connection, name, key)
        last = 0 if found.is_deletion and found.revision == last else last
    if last != (entry.revision if entry else 0):
        raise StaleRead(f"a replica lags behind with {name}/{key}, or it is being written")
