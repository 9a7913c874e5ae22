"""A partition's entry in KV, as its one owner keeps it: claimed once, by compare-and-set; its tasks move it from then on."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from broker.app.exits import ConfigurationError, FencedError, OperatorError
from broker.app.faults import fault
from broker.client import bucket
from broker.client.bucket import Conflict
from broker.client.connection import Connection, ConnectionLost, Denied, Rejected
from broker.client.quorum import is_certain
from broker.wire.descent import ancestors, is_being_restored
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from receiver.consume import offsets
from receiver.consume.entry import iso
from receiver.consume.offsets import FilesMismatch, StreamState
from receiver.consume.outcome import Done
from receiver.consume.wake import Wake
from receiver.storage.position import Batch, Damaged
from receiver.storage.site import Site

__all__ = ["Ledger", "TakenOver", "hold_against_stream", "stream_state"]

_PAUSE, _LAG = 0.5, 0.05  # seconds

logger = logging.getLogger(__name__)


class TakenOver(FencedError):
    """Another receiver, `owner`, has a partition by now."""

    def __init__(self, partition: int, owner: str) -> None:
        """Say which, and who."""
        super().__init__(
            f"partition {partition}: {owner} has taken it over; only one receiver may own a partition"
        )
        self.owner = owner


class Ledger:
    """The offset of one partition and the epoch in which we own it."""

    def __init__(
        self,
        connection: Connection,
        partition: int,
        owner: str,
        site: Site | None = None,
        presence: str = "",
    ) -> None:
        """Know nothing yet; `claim` comes first. What the store at the site says must go with the offset."""
        self._presence = presence
        self._connection = connection
        self._partition = partition
        self._owner = owner
        self._site = site
        self._clear_until = 0
        self.offset: Offset | None = None
        self.is_unsettled = False  # a batch that may be undone, for all that the store says

    async def claim(self, now: datetime, revision: int | None = None) -> Offset | None:
        """Take the partition over from whoever owns it, and return where to go on.

        With a `revision` only if the entry still is at it, else None. Raises `StreamMismatch` and `FilesMismatch`,
        ConfigurationError for an unreadable entry, OperatorError for folders that cannot be read, `Rejected`,
        `ConnectionLost`.
        """
        doubt: tuple[int, str] | None = None
        while True:
            stream = await stream_state(self._connection)
            entry = await bucket.read(self._connection, OFFSETS_BUCKET, self._key)
            seen = entry.revision if entry else 0
            if revision is not None and seen != revision:
                return None
            try:
                last = await self._last_batch(self._decode(entry))
                before, offset = await self._next(entry, stream, last, iso(now))
                await self._write(offset, seen)
            except FilesMismatch as error:
                if doubt == (seen, str(error)):
                    await self._confirm(entry)
                    raise
                doubt = (seen, str(error))
                await asyncio.sleep(
                    _PAUSE
                )  # they may have been seen a moment apart, under a living owner
            except ConfigurationError:
                await self._confirm(entry)
                raise
            except Conflict:
                # another receiver claims at this moment, and the later one wins; or a replica has answered that lags
                await asyncio.sleep(_LAG)
            else:
                fault("claimed")
                self.offset = offset
                self._clear_until = max(stream.first, offset.clear_until)
                self._tell(before, offset, stream, last)
                return offset

    async def _next(
        self, entry: bucket.Entry | None, stream: StreamState, last: Batch | None, now: str
    ) -> tuple[Offset | None, Offset]:
        """Return the offset as it counts now, and as it is once it is ours; raises what `claim` raises."""
        before = offsets.carried_over(self._decode(entry), stream, now)
        stream = await self._witnessed(stream, before)
        offset = offsets.claimed(before, stream, self._partition, self._owner, now, last)
        return before, replace(offset, presence=self._presence)

    async def _witnessed(self, stream: StreamState, offset: Offset | None) -> StreamState:
        if offset is None or not offsets.has_witness(offset, stream):
            return stream
        return replace(stream, witness=await self._witness(offset))

    async def _confirm(self, entry: bucket.Entry | None) -> None:
        """Return when the entry is the newest; raises `Behind`: then whatever it contradicts is to be asked again."""
        await bucket.confirm(self._connection, OFFSETS_BUCKET, self._key, entry)

    async def _witness(self, before: Offset) -> str:
        """Return when the message was stored that stands where the last committed one was; nothing if nothing contradicts.

        Where that one is gone, or is of another partition, any of ours before the offset that was stored after it tells
        of a stream that was rewound as well.
        """
        bell = Wake(self._connection, self._partition, before.epoch + 1)
        try:
            found = await bell.first(before.next - 1)
            if found is None or found.sequence != before.next - 1:
                found = await bell.first_since(offsets.after(before.last_time))
        except Denied:
            return ""
        finally:
            await bell.close()
        if found is None or found.sequence >= before.next:
            return ""
        return iso(datetime.fromtimestamp(found.stored_at / 1e9, UTC))

    async def _last_batch(self, offset: Offset | None) -> Batch | None:
        """Return the batch that the store has; raises `FilesMismatch` where it does not go with the files."""
        if self._site is None:
            return None
        try:
            last = await asyncio.to_thread(self._site.last_batch, offset.lines if offset else 0)
        except Damaged as error:
            raise FilesMismatch(f"partition {self._partition}: {error}") from None
        except OSError as error:
            raise _unusable(error) from None
        self.is_unsettled = last is not None and last.first != last.until
        return last

    def _tell(
        self, before: Offset | None, offset: Offset, stream: StreamState, last: Batch | None
    ) -> None:
        if self._site and (words := offsets.elsewhere(offset if before else None, last)):
            logger.warning(
                "partition %d: the %s; what was received before is where %s wrote it",
                self._partition,
                words,
                before.owner if before else "nobody",
            )
        if before and stream.first > max(offset.next, offset.clear_until):
            logger.warning(
                "partition %d: the stream begins at sequence %d by now; what there was for it from %d on, if anything, is gone "
                "by retention, and is named by file as soon as more of the file comes",
                self._partition,
                stream.first,
                offset.next,
            )

    async def check(self, *, is_silent: bool) -> None:
        """Hold the offset against the stream as it is now, which may have been made anew or purged under our hands.

        While the partition `is_silent`, whatever the stream loses below its end is none of ours. Raises
        `StreamMismatch`, `Rejected`, `ConnectionLost`.
        """
        if self.offset is None:
            return
        stream = await stream_state(self._connection)
        first = offsets.start(self.offset, stream, self._partition)
        if stream.first > max(first, self._clear_until):
            logger.warning(
                "partition %d: the stream begins at sequence %d by now, before the receiver had come there (%d): it was "
                "purged, or is too small for the time that this takes; what was there for it, if anything, is named by file "
                "as soon as more of the file comes",
                self._partition,
                stream.first,
                first,
            )
            self._clear_until = stream.until
        if is_silent:
            self._clear_until = stream.until

    def _decode(self, entry: bucket.Entry | None) -> Offset | None:
        try:
            return Offset.decode(entry.value) if entry else None
        except UnreadableOffset as error:
            raise ConfigurationError(
                f"key {self._key} of bucket {OFFSETS_BUCKET}: {error}; `logreceiver offsets show --history` has its older revisions, "
                "`logreceiver offsets set` writes one back"
            ) from None

    def follow(self, done: Done) -> None:
        """Take in what a task has committed; KV has it already."""
        if self.offset is not None:
            self.offset = replace(self.offset, next=max(self.offset.next, done.until))

    async def confirm(self) -> None:
        """Raise `TakenOver` when another receiver owns the partition by now, `FencedError` when a person has moved its offset.

        Raises `Rejected`, `ConnectionLost`.
        """
        await self._confirmed()

    async def look_around(self) -> None:
        """Raise what `confirm` raises, and what `check` raises where the entry was set back: its bucket was restored then."""
        found = await self._confirmed()
        if self.offset is not None and found.next < self.offset.next:
            await self.check(is_silent=False)

    async def _confirmed(self) -> Offset:
        found = self._decode(await bucket.read(self._connection, OFFSETS_BUCKET, self._key))
        if found is None:
            await self._confirm(None)
        if found is None:
            raise FencedError(f"partition {self._partition}: somebody has deleted its offset")
        if self.offset is None or found.epoch > self.offset.epoch:
            if found.is_moved:
                raise FencedError(
                    f"partition {self._partition}: {found.owner} has moved its offset"
                )
            raise TakenOver(self._partition, found.owner)
        return found

    async def release(self) -> None:
        """Leave the entry to whoever waits for it; a task of ours that is still at work can commit nothing any more.

        Leaves alone what somebody else has claimed. Raises ConfigurationError, `Rejected`, `ConnectionLost`.
        """
        entry = await bucket.read(self._connection, OFFSETS_BUCKET, self._key)
        found = self._decode(entry)
        if entry is None or found is None or self.offset is None:
            return
        if found.epoch == self.offset.epoch:
            clear = max(found.clear_until, self._clear_until)
            left = replace(found, presence="", released=True, clear_until=clear)
            with suppress(Conflict):
                await self._write(left, entry.revision)

    async def _write(self, offset: Offset, revision: int) -> None:
        await bucket.write(self._connection, OFFSETS_BUCKET, self._key, offset.encode(), revision)

    @property
    def _key(self) -> str:
        return offset_key(self._partition)


async def stream_state(connection: Connection) -> StreamState:
    """Ask the broker what the stream holds; raises `Rejected` when there is none, or only a part of a backup yet.

    Raises `ConnectionLost` when nobody can say so for sure: a stream that seems shorter than it is would look rewound.
    """
    info = await connection.api(f"STREAM.INFO.{STREAM}")
    state, config = info["state"], info["config"]
    if not is_certain(info):
        raise ConnectionLost(f"stream {STREAM} has no leader that is sure of it")
    if is_being_restored(config):
        raise Rejected(503, 0, f"stream {STREAM} is being restored from a backup")
    return StreamState(
        info["created"],
        int(state["first_seq"]),
        int(state["last_seq"]) + 1,
        ancestors=ancestors(config),
    )


async def hold_against_stream(connection: Connection, offset: Offset, partition: int) -> None:
    """Raise `StreamMismatch` when the stream is not, or no longer, the one that the offset belongs to."""
    offsets.start(offset, await stream_state(connection), partition)


def _unusable(error: OSError) -> OperatorError:
    return OperatorError(
        f"cannot use {error.filename}: {error.strerror}; choose --output and --state-dir"
    )
