"""A partition's entry in KV: claimed by the driver that owns the partition, moved by its tasks, each time by compare-and-set.

The epoch in an entry tells whose it is, and the revision in hand is the fence: whoever else has written the entry since
makes the next write fail. One replica of several may answer that lags, so nothing that cannot be taken back is concluded
from what was read before it is confirmed.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from nats_logship.app.exits import FencedError, OperatorError
from nats_logship.app.faults import fault
from nats_logship.app.timestamps import format_datetime, format_time
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.message import IMPOSSIBLE_SEQUENCE
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.assignment import Done
from receiver.consume.stream_check import require_same_stream, start
from receiver.storage.commit import find_first_undone
from receiver.storage.damage import Damaged
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.rows import StoredBatch

_NOT_KNOWN = "not known"  # the last commit of an offset that was lost
_LAST = re.compile(r"wrong last sequence: ([0-9]+)")
_PAUSE, _AGAIN = 0.5, 0.05  # seconds between looks, and between claims

logger = logging.getLogger(__name__)


class StaleRead(ConnectionLost):
    """What was read is not the newest: a replica has answered that lags. To be read again."""


async def confirm_entry(
    connection: Connection, name: str, key: str, entry: bucket.Entry | None
) -> None:
    """Return when `entry` is the newest of its key as the leader has it (None: there is none); raises `StaleRead` if not.

    Asks by a write that is always refused, since a refusal comes from the leader and names the last revision; whoever
    may write the key may ask. Raises `Rejected`, `ConnectionLost`.
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


def carry_over(offset: Offset | None, stream: StreamState, now: str) -> Offset | None:
    """Return the entry as it counts in a stream that was restored; any other as it is.

    As if moved by a person, who has asked for the restore: what the files have since is told by their spans.
    """
    until = stream.in_common_with(offset.stream_created) if offset else None
    if offset is None or until is None:
        return offset
    # behind the end of the backup the same sequences are other lines
    return moved(offset, stream, min(offset.next, until), "logbroker restore", now)


def find_end_of_files(last: StoredBatch, stream: StreamState, partition: int) -> int:
    """Return where a partition goes on behind what its files have; raises `StreamMismatch` where that is of another stream."""
    end = Offset(last.until, last.epoch, last.created, "", stream=last.stream)
    return start(carry_over(end, stream, ""), stream, partition)


def moved(
    offset: Offset | None, stream: StreamState, to: int, by: str, now: str, revision: int = 0
) -> Offset:
    """Return the entry of an offset that a person moves, and that may be none.

    It stops whoever owns the partition. The files are judged by the batch that was committed last, where that is known.
    Where there is no entry, an owner may have lost it: no epoch was ever beyond the newest `revision` of the key.
    """
    before = offset or Offset(to, revision, "", by, commit=_NOT_KNOWN, stream=stream.name)
    moved = _of_next_epoch(before, by, now)
    return replace(moved, next=to, stream_created=stream.created, moved_in=moved.epoch)


def _of_next_epoch(offset: Offset, owner: str, now: str) -> Offset:
    epoch = offset.epoch + 1
    return replace(offset, epoch=epoch, owner=owner, presence="", released=False, committed_at=now)


class TakenOver(FencedError):
    """Another receiver, `owner`, has a partition by now."""

    def __init__(self, partition: int, owner: str) -> None:
        """Say which, and who."""
        super().__init__(
            f"partition {partition}: {owner} has taken it over; only one receiver may own a partition"
        )
        self.owner = owner


@dataclass(eq=False)
class EntryTaken(Exception):
    """Somebody else has written the entry; `found` is what it is now, None when it was deleted."""

    found: Offset | None


@dataclass(slots=True)
class Claim:
    """The driver's side: the offset of one partition and the epoch in which `owner` has it, known once `claim` was called.

    What the store in `folders` says must go with the offset.
    """

    connection: Connection
    partition: int
    owner: str
    stream: str
    folders: PartitionFolders | None = None
    presence: str = ""
    offset: Offset | None = None

    @property
    def _at(self) -> tuple[Connection, str, str]:
        return self.connection, OFFSETS_BUCKET, offset_key(self.partition)

    async def claim(self, now: datetime, revision: int | None = None) -> Offset | None:
        """Take the partition over from whoever owns it, and return where to go on.

        With a `revision` only if the entry still is at it, else None. Raises what `examine` raises.
        """
        while True:
            offset, newest, first = await self.examine(now)
            if revision is not None and newest != revision:
                return None
            try:
                await bucket.write(*self._at, offset.encode(), newest)
            except Conflict:
                # another receiver claims at this moment, and the later one wins; or a replica has answered that lags
                await asyncio.sleep(_AGAIN)
                continue
            fault("claimed")
            self.offset = offset
            if offset.epoch > 1 and first > offset.next:
                words = (
                    "partition %d: the stream begins at sequence %d by now; what there was for it from %d on, "
                    "if anything, is gone and was not received"
                )
                logger.warning(words, self.partition, first, offset.next)
            return offset

    async def examine(self, now: datetime) -> tuple[Offset, int, int]:
        """Return the offset as a claim would write it, the revision that it would replace, and where the stream begins.

        Changes nothing. Raises `Damaged` where a person has to decide first, OperatorError for folders that cannot be
        read, `Rejected`, `ConnectionLost`.
        """
        doubt: tuple[int, str] | None = None
        while True:
            stream = await get_stream_state(self.connection, self.stream)
            entry = await bucket.read(*self._at)
            newest = entry.revision if entry else (await bucket.read_newest(*self._at)).revision
            try:
                return (
                    await self._next(entry, stream, format_datetime(now, "milliseconds"), newest),
                    newest,
                    stream.first,
                )
            except Damaged as error:
                await confirm_entry(*self._at, entry)
                if doubt == (newest, str(error)):
                    raise self._advised(error) from None
                doubt = (newest, str(error))  # a living owner may have moved on between two looks
            await asyncio.sleep(_PAUSE)

    async def _next(
        self, entry: bucket.Entry | None, stream: StreamState, now: str, revision: int
    ) -> Offset:
        """Return the offset as it is once it is ours, where store, offset and stream go together; raises what `claim` raises."""
        offset = carry_over(self._decode(entry), stream, now)
        last, first = await self._last_batch(offset), start(offset, stream, self.partition)
        if offset is None and last is not None and last.until:
            end = find_end_of_files(last, stream, self.partition)
            words = f"{self._key} is gone, but the files were written up to sequence {end}"
            raise Damaged(self.partition, words)
        before = offset or Offset(first, revision, stream.created, "", stream=stream.name)
        claim = _of_next_epoch(before, self.owner, now)
        if offset is not None and last is not None:
            find_first_undone(last, claim, self.partition)
        return replace(claim, presence=self.presence)

    async def _last_batch(self, offset: Offset | None) -> StoredBatch | None:
        """Return the batch that the store has; raises `Damaged` where it does not go with the files."""
        if self.folders is None:
            return None
        try:
            return await asyncio.to_thread(
                self.folders.read_last_batch, offset.lines if offset else 0
            )
        except OSError as error:
            raise OperatorError(
                f"cannot use {error.filename}: {error.strerror}; choose --output and --state-dir"
            ) from None

    async def check(self) -> None:
        """Raise `StreamMismatch` where the stream was made anew under our hands, `Rejected`, `ConnectionLost`."""
        if self.offset is not None:
            await require_same_stream(self.connection, self.offset, self.partition)

    def follow(self, done: Done) -> None:
        """Take in what a task has committed; KV has it already."""
        if self.offset is not None:
            self.offset = replace(self.offset, next=max(self.offset.next, done.until))

    async def confirm(self) -> Offset:
        """Return the entry, which is ours; raises `TakenOver` when another receiver owns the partition by now.

        Raises `FencedError` when a person has moved its offset, `Damaged` for none or one that
        cannot be read, `Rejected`, `ConnectionLost`.
        """
        entry = await bucket.read(*self._at)
        found = self._decode(entry)
        if found is None:
            await confirm_entry(*self._at, entry)
            raise self._advised(Damaged(self.partition, f"{self._key} is gone"))
        if self.offset is None or found.epoch > self.offset.epoch:
            if found.is_moved:
                raise FencedError(f"partition {self.partition}: {found.owner} has moved its offset")
            raise TakenOver(self.partition, found.owner)
        return found

    async def check_ownership(self) -> None:
        """Raise what `confirm` raises, and what `check` raises where the entry was set back: its bucket was restored then."""
        found = await self.confirm()
        if self.offset is not None and found.next < self.offset.next:
            await self.check()

    async def release(self) -> None:
        """Leave the entry to whoever waits for it; a task of ours that is still at work can commit nothing any more.

        Leaves alone what somebody else has claimed. Raises `Damaged`, `Rejected`, `ConnectionLost`.
        """
        entry = await bucket.read(*self._at)
        found = self._decode(entry)
        if entry and found and self.offset and found.epoch == self.offset.epoch:
            with suppress(Conflict):
                released = replace(found, presence="", released=True)
                await bucket.write(*self._at, released.encode(), entry.revision)

    @property
    def _key(self) -> str:
        return f"key {self._at[2]} of bucket {OFFSETS_BUCKET}"

    def _decode(self, entry: bucket.Entry | None) -> Offset | None:
        try:
            return Offset.decode(entry.value) if entry else None
        except UnreadableOffset as error:
            raise self._advised(self._unreadable(f"{self._key}: {error}")) from None

    def _advised(self, error: Damaged) -> Damaged:
        return (
            error.with_folders(self.folders.output, self.folders.state) if self.folders else error
        )

    def _unreadable(self, reason: str) -> Damaged:
        """Return an error whose command works: files are adopted by what a store knows of them."""
        if self.folders and self.folders.store_path.exists():
            return Damaged(self.partition, reason)
        effect = "begins with what the stream holds now"
        return Damaged(self.partition, reason, "set --partition {} --to earliest", effect)


@dataclass(slots=True)
class OffsetEntry:
    """The task's side: the offset, read once under the partition's lock and then moved; nothing is known before `read`.

    `clock` is asked for the time of each move.
    """

    connection: Connection
    partition: int
    clock: Callable[[], datetime]
    offset: Offset | None = None
    _revision: int = 0

    @property
    def _at(self) -> tuple[Connection, str, str]:
        return self.connection, OFFSETS_BUCKET, offset_key(self.partition)

    async def read(self, epoch: int = 0, first: int = 0) -> Offset | None:
        """Ask KV, of which it is known that `epoch` has begun and that all before `first` was committed then.

        Raises `StaleRead` for a replica that has not come so far, `UnreadableOffset`, `Rejected`, `ConnectionLost`.
        """
        entry = await bucket.read(*self._at)
        self._revision = entry.revision if entry else 0
        self.offset = Offset.decode(entry.value) if entry else None
        if self.offset is None or (self.offset.epoch, self.offset.next) < (epoch, first):
            await confirm_entry(*self._at, entry)
        return self.offset

    async def move(self, done: Done) -> None:
        """Move the offset over a batch that is on disk; this is the moment from which it counts.

        Raises `EntryTaken`, `Rejected` and `ConnectionLost`: whether it was moved is then for the next session to see.
        """
        assert self.offset is not None, "read, and found ours, before anything is written"
        await self._put(
            replace(
                self.offset,
                next=done.until,
                lines=self.offset.lines + done.lines,
                size=self.offset.size + done.size,
                last_time=format_time(done.stored_at, "milliseconds"),
                committed_at=format_datetime(self.clock(), "milliseconds"),
                commit=done.commit,
                moved_in=0,
            )
        )

    async def fence(self) -> None:
        """Write the entry as it is: a move that an earlier attempt has sent, and is still on its way, fails from now on.

        It also shows that what was read was the newest, which a replica need not have had. Raises what `move` raises.
        """
        assert self.offset is not None, "read, and found ours, before anything is undone"
        await self._put(self.offset)

    async def _put(self, moved: Offset) -> None:
        try:
            self._revision = await bucket.write(*self._at, moved.encode(), self._revision)
        except Conflict:
            entry = await bucket.read(*self._at)
            await confirm_entry(*self._at, entry)
            raise EntryTaken(Offset.decode(entry.value) if entry else None) from None
        self.offset = moved
