"""A partition's entry in KV as the task that stays at it holds it: read once, then moved by compare-and-set.

The revision in hand is the fence: whoever else has written the entry since makes the next move fail.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from broker.client import bucket
from broker.client.bucket import Conflict
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.offset import Beginning, Offset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.outcome import Done

__all__ = ["Entry", "Taken", "nanoseconds"]

_PATIENCE = 20.0  # seconds for a move; then the stay ends, and the next one finds out how it went
_PAUSE = 0.5  # seconds between attempts
_LAG, _AGAIN = (
    3.0,
    0.05,
)  # seconds for a replica of the broker to come up with the others, and between looks


logger = logging.getLogger(__name__)


class Taken(Exception):
    """Somebody else has written the entry; `found` is what it is now, None when it was deleted."""

    def __init__(self, found: Offset | None) -> None:
        """Keep what was found."""
        super().__init__(f"written by {found.owner if found else 'nobody'}")
        self.found = found


class Entry:
    """The offset of one partition; nothing is known before `read`."""

    def __init__(
        self, connection: Connection, partition: int, clock: Callable[[], datetime]
    ) -> None:
        """Ask nothing yet; `clock` is asked for the time of each move."""
        self._connection = connection
        self._key = offset_key(partition)
        self._clock = clock
        self._revision = 0
        self.offset: Offset | None = None

    async def read(self, epoch: int = 0, first: int = 0) -> Offset | None:
        """Ask KV, of which it is known that `epoch` has begun and that all before `first` was committed then.

        A replica that has not come so far is asked again for a while. Raises `UnreadableOffset`, `Rejected`,
        `ConnectionLost`.
        """
        give_up = asyncio.get_running_loop().time() + _LAG
        while True:
            entry = await bucket.read(self._connection, OFFSETS_BUCKET, self._key)
            self._revision = entry.revision if entry else 0
            self.offset = Offset.decode(entry.value) if entry else None
            if self.offset and (self.offset.epoch, self.offset.next) >= (epoch, first):
                return self.offset
            try:
                await bucket.confirm(self._connection, OFFSETS_BUCKET, self._key, entry)
            except bucket.Behind:
                if asyncio.get_running_loop().time() > give_up:
                    raise
                await asyncio.sleep(_AGAIN)
            else:
                return self.offset

    async def move(self, done: Done) -> None:
        """Move the offset over a batch that is on disk; this is the moment from which it counts.

        However often the connection breaks, it is moved once. Raises `Taken`; `Rejected` and `ConnectionLost` when the
        broker takes no move for long, and TimeoutError: whether it was moved is then for the next reader to see.
        """
        assert self.offset is not None, "read, and found ours, before anything is written"
        stored = iso(datetime.fromtimestamp(done.stored_at / 1e9, UTC))
        moved = self.offset.advanced(done.until, done.lines, done.size, stored, iso(self._clock()))
        committed = Beginning(moved.epoch, moved.next)  # what persons have moved is settled by now
        await self._put(replace(moved, lineage=(committed,)))

    async def fence(self) -> None:
        """Write the entry as it is: a move that an earlier attempt has sent, and is still on its way, fails from now on.

        It also shows that what was read was the newest, which a replica of the broker need not have had. Raises what
        `move` raises.
        """
        assert self.offset is not None, "read, and found ours, before anything is undone"
        await self._put(self.offset)

    async def _put(self, moved: Offset) -> None:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _PATIENCE
        while True:
            await self._connected(give_up)
            try:
                self._revision = await bucket.write(
                    self._connection, OFFSETS_BUCKET, self._key, moved.encode(), self._revision
                )
                break
            except (Conflict, ConnectionLost, Rejected) as error:
                logger.debug("%s was perhaps not written: %s", self._key, error)
                if await self._is_stored(moved, give_up):
                    break
                if loop.time() > give_up and isinstance(error, Conflict):
                    raise bucket.Behind(str(error)) from None
                if loop.time() > give_up:
                    raise
            await asyncio.sleep(_PAUSE)
        self.offset = moved

    async def _connected(self, give_up: float) -> None:
        async with asyncio.timeout_at(give_up):
            await self._connection.client()

    async def _is_stored(self, moved: Offset, give_up: float) -> bool:
        """Ask KV after a doubtful write; False means that it can be tried again."""
        await self._connected(give_up)
        try:
            entry = await bucket.read(self._connection, OFFSETS_BUCKET, self._key)
        except (ConnectionLost, Rejected):
            return False
        if entry and entry.revision == self._revision:
            return False
        if entry is None or entry.revision < self._revision:
            return await self._is_behind(entry)
        found = Offset.decode(entry.value)
        if found != moved:
            raise Taken(found)
        self._revision = entry.revision
        return True

    async def _is_behind(self, entry: bucket.Entry | None) -> bool:
        """Return False for an entry of a replica that lags, which says nothing; raises `Taken` for one that counts."""
        try:
            await bucket.confirm(self._connection, OFFSETS_BUCKET, self._key, entry)
        except (ConnectionLost, Rejected):
            return False
        raise Taken(Offset.decode(entry.value) if entry else None)


def nanoseconds(moment: str) -> int:
    """Read a moment that `iso` wrote, since the epoch; 0 for none, or what is none."""
    try:
        return round(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000
    except ValueError:
        return 0


def iso(moment: datetime) -> str:
    """Write a moment as entries hold it: RFC 3339, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
