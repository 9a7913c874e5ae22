"""A partition's entry in KV as its driver uses it: claimed with a new epoch, watched, released.

The epoch in the entry says which claim owns the partition. A claim is a compare-and-set on the
revision that was examined, so of two receivers that claim at a time the later one examines again.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from nats_logship.app.exits import FencedError, OperatorError
from nats_logship.app.faults import fault
from nats_logship.app.timestamps import format_datetime
from nats_logship.client import bucket
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.assignment import Done
from receiver.consume.offset_entry import confirm_entry
from receiver.storage.damage import TO_EARLIEST, Damaged
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.recovery import find_first_to_undo
from receiver.storage.rows import StoredBatch


class StreamMismatch(Damaged):
    """The offset belongs to another stream; going on could lose or repeat lines."""


class StreamRestored(StreamMismatch):
    """The stream was restored from a backup of the offset's stream; a claim adapts the offset."""


def find_first_sequence(offset: Offset | None, stream: StreamState, partition: int) -> int:
    """Return the first sequence to receive.

    Raises `StreamMismatch` if the stream was recreated or went back to an earlier end.
    """
    if offset is None:
        return max(stream.first, 1)
    if stream.in_common_with(offset.stream_created) is not None:
        raise StreamRestored(partition, f"stream {stream.name} was restored from a backup", ())
    if offset.stream_created != stream.created or offset.next > max(stream.until, 1):
        # the reason does not name the stream's end: it grows, and each new reason is logged
        raise StreamMismatch(
            partition,
            f"stream {stream.name}, of {stream.created}, was recreated, rewound or restored: the "
            f"offset {offset.next} belongs to the one of {offset.stream_created}",
            (TO_EARLIEST,),
        )
    return offset.next


async def require_same_stream(connection: Connection, offset: Offset, partition: int) -> int:
    """Return the end of an offset's stream, the sequence behind its last message.

    Raises `StreamMismatch` unless this is the stream that the broker has now.
    """
    state = await get_stream_state(connection, offset.stream)
    find_first_sequence(offset, state, partition)
    return state.until


@dataclass(slots=True)
class StreamStates:
    """The states of streams, asked for once for all partitions of a receiver.

    A state that is some seconds old may clear an offset. Only one that is new may object: the
    offset may have moved since.
    """

    connection: Connection
    most_age: float = 5.0  # seconds
    _found: dict[str, tuple[float, StreamState]] = field(default_factory=dict)

    async def require_same_stream(self, offset: Offset, partition: int) -> StreamState:
        """Return the state of an offset's stream; raises as `require_same_stream`."""
        now, name = asyncio.get_running_loop().time(), offset.stream
        if name in self._found and now - self._found[name][0] < self.most_age:
            with suppress(StreamMismatch):
                find_first_sequence(offset, self._found[name][1], partition)
                return self._found[name][1]
        self._found[name] = now, await get_stream_state(self.connection, name)
        find_first_sequence(offset, self._found[name][1], partition)
        return self._found[name][1]


_NOT_KNOWN = "not known"  # the last commit of an offset that was lost
_EXAMINE_AGAIN, _CLAIM_AGAIN = 0.5, 0.05  # seconds

logger = logging.getLogger(__name__)


class TakenOver(FencedError):
    """Another receiver, `owner`, has claimed a partition."""

    def __init__(self, partition: int, owner: str) -> None:
        """Name both in the message."""
        super().__init__(
            f"partition {partition}: {owner} has taken it over; only one receiver may own a "
            "partition"
        )
        self.owner = owner


def adapt_to_restored(offset: Offset | None, stream: StreamState, now: str) -> Offset | None:
    """Return an offset of the stream that `stream` was restored from as an offset of `stream`.

    Returns any other offset unchanged. A restore counts as a move by a person, who has asked for
    it. Spans keep the lines that the files have received since the backup from being repeated.
    """
    until = stream.in_common_with(offset.stream_created) if offset else None
    if offset is None or until is None:
        return offset
    # from `until` on the same sequences are other messages
    return move_offset(offset, stream, min(offset.next, until), "logbroker restore", now)


def find_end_of_files(last: StoredBatch, stream: StreamState, partition: int) -> int:
    """Return the first sequence that the files do not have.

    Raises `StreamMismatch` if they were received from another stream.
    """
    end = Offset(last.until, last.epoch, last.created, "", stream=last.stream)
    return find_first_sequence(adapt_to_restored(end, stream, ""), stream, partition)


def move_offset(offset: Offset, stream: StreamState, to: int, by: str, now: str) -> Offset:
    """Return the entry of an offset that a person, `by`, moves to a sequence of a stream.

    Its new epoch fences the owner. The last commit stays, so that store and files can be checked
    against it.
    """
    moved = _begin_epoch(offset, by, now)
    return replace(moved, next=to, stream_created=stream.created, moved_in=moved.epoch)


def describe_lost(stream: StreamState, to: int, by: str, revision: int) -> Offset:
    """Return what `move_offset` moves if the key has no entry, or one that cannot be read.

    Its epoch is the key's newest `revision`: no owner has had a higher one.
    """
    return Offset(to, revision, "", by, commit=_NOT_KNOWN, stream=stream.name)


def _begin_epoch(offset: Offset, owner: str, now: str) -> Offset:
    epoch = offset.epoch + 1
    return replace(offset, epoch=epoch, owner=owner, presence="", released=False, committed_at=now)


@dataclass(slots=True)
class Claim:
    """The claim of `owner` on a partition; `offset` is known once `claim` was called.

    The store in `folders` must belong to the offset.
    """

    connection: Connection
    partition: int
    owner: str
    stream: str
    folders: PartitionFolders | None = None
    presence: str = ""
    offset: Offset | None = None
    states: StreamStates | None = None
    """What other partitions have asked about streams, None to ask oneself."""
    _checked_until: int = 0  # the end of the stream when it was checked last
    _silent_until: int = 0  # the stream had nothing left for the partition before this sequence
    _removed: range = range(0)  # sequences that the stream may have lost before they were received

    @property
    def _at(self) -> tuple[Connection, str, str]:
        return self.connection, OFFSETS_BUCKET, offset_key(self.partition)

    async def claim(self, now: datetime, revision: int | None = None) -> Offset | None:
        """Take the partition from its owner, and return where to go on.

        With a `revision` only if the entry is still at it, else None. Raises what `examine` raises.
        """
        while True:
            offset, newest, first = await self.examine(now)
            if revision is not None and newest != revision:
                return None
            try:
                await bucket.write(*self._at, offset.encode(), newest)
            except Conflict:
                # another receiver has claimed at the same time, or a replica that lags has answered
                await asyncio.sleep(_CLAIM_AGAIN)
                continue
            fault("claimed")
            self.offset = offset
            self._checked_until = self._silent_until = 0
            self._removed = range(offset.next if offset.epoch > 1 else first, first)
            self.report_removed()
            return offset

    async def examine(self, now: datetime) -> tuple[Offset, int, int]:
        """Return what a claim would write, which revision it would replace, and the stream's first.

        Changes nothing. Raises `Damaged` if a person has to decide first, OperatorError for folders
        that cannot be read, `Rejected`, `ConnectionLost`.
        """
        doubt: tuple[int, str] | None = None
        while True:
            stream = await get_stream_state(self.connection, self.stream)
            entry = await bucket.read(*self._at)
            newest = entry.revision if entry else (await bucket.read_newest(*self._at)).revision
            moment = format_datetime(now, "milliseconds")
            try:
                return await self._next_offset(entry, stream, moment, newest), newest, stream.first
            except Damaged as error:
                await confirm_entry(*self._at, entry)
                # a running owner may have committed between the read of the entry and of the store
                if doubt == (newest, str(error)):
                    raise self._add_advice(error) from None
                doubt = (newest, str(error))
            await asyncio.sleep(_EXAMINE_AGAIN)

    async def _next_offset(
        self, entry: bucket.Entry | None, stream: StreamState, now: str, revision: int
    ) -> Offset:
        """Return the offset of a claim; raises `Damaged` if store, offset and stream disagree."""
        offset = adapt_to_restored(self._decode(entry), stream, now)
        last = await self._last_batch(offset)
        first = find_first_sequence(offset, stream, self.partition)
        if offset is None and last is not None and last.until:
            end = find_end_of_files(last, stream, self.partition)
            reason = f"{self._key} is gone, but the files end before sequence {end}"
            raise Damaged(self.partition, reason)
        before = offset or Offset(first, revision, stream.created, "", stream=stream.name)
        claimed = _begin_epoch(before, self.owner, now)
        if offset is not None and last is not None:
            find_first_to_undo(last, claimed, self.partition)
        return replace(claimed, presence=self.presence)

    async def _last_batch(self, offset: Offset | None) -> StoredBatch | None:
        """Return the store's last batch; raises `Damaged` if store and files disagree."""
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

    async def check_stream(self) -> None:
        """Raise `StreamMismatch` if the stream was recreated, `Rejected`, `ConnectionLost`."""
        if self.offset is not None:
            states = self.states or StreamStates(self.connection)
            try:
                stream = await states.require_same_stream(self.offset, self.partition)
            except StreamMismatch as error:
                raise self._add_advice(error) from None
            self._checked_until = stream.until
            self._removed = range(max(self.offset.next, self._silent_until), stream.first)

    def report_removed(self) -> None:
        """Log which messages were removed before they were received, by the last check.

        The stream does not know the partition of a message that it has no longer.
        """
        if removed := self._removed:
            self._removed, self._silent_until = range(0), removed.stop
            logger.warning(
                "partition %d: messages of the partition from sequence %d to %d, if there were "
                "any, were removed from the stream before they were received",
                self.partition,
                removed.start,
                removed.stop - 1,
            )

    def note_silence(self) -> None:
        """Do that, and note that the partition had nothing left at the last check."""
        self.report_removed()
        self._silent_until = max(self._silent_until, self._checked_until)

    def advance(self, done: Done) -> None:
        """Note what a task has committed in KV."""
        if self.offset is not None:
            self.offset = replace(self.offset, next=max(self.offset.next, done.until))

    async def confirm(self) -> Offset:
        """Return the entry if it is ours.

        Raises `TakenOver` if another receiver owns the partition, `FencedError` if a person has
        moved its offset, `Damaged` if the entry is gone or cannot be read, `Rejected`,
        `ConnectionLost`.
        """
        entry = await bucket.read(*self._at)
        found = self._decode(entry)
        if found is None:
            await confirm_entry(*self._at, entry)
            raise self._add_advice(Damaged(self.partition, f"{self._key} is gone"))
        if self.offset is None or found.epoch > self.offset.epoch:
            if found.is_moved:
                raise FencedError(f"partition {self.partition}: {found.owner} has moved its offset")
            raise TakenOver(self.partition, found.owner)
        return found

    async def check_ownership(self) -> None:
        """Raise what `confirm` raises; check the stream too if the offset went back.

        The offset goes back only if its bucket was restored.
        """
        found = await self.confirm()
        if self.offset is not None and found.next < self.offset.next:
            await self.check_stream()

    async def release(self) -> None:
        """Mark the partition as free, so that a standby claims it at once.

        A task of ours that still runs can commit nothing from then on. An entry that somebody else
        has claimed stays as it is. Raises `Damaged`, `Rejected`, `ConnectionLost`.
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
            raise self._add_advice(self._unreadable(f"{self._key}: {error}")) from None

    def _add_advice(self, error: Damaged) -> Damaged:
        return self.folders.advise(error) if self.folders else error

    def _unreadable(self, reason: str) -> Damaged:
        """Return an error whose command works: `adopt` needs a store, `set` does not."""
        if self.folders and self.folders.store_path.exists():
            return Damaged(self.partition, reason)
        return Damaged(self.partition, reason, (TO_EARLIEST,))
