"""Makes room once: looks through what is received and takes out what must go, or drops what nobody has, by name.

Killed at any point: a purge of received messages is repeated or not, nobody can tell; a drop stands in the drop book
before its first message goes, and the next keeper looks how far it came.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.client.connection import Connection, Rejected
from broker.keeping.room_dropped import Dropped, dropped, iso
from broker.keeping.room_drops import Announced, DropBook
from broker.keeping.room_marks import Amount
from broker.keeping.room_plan import Seen, Sweep
from broker.keeping.room_received import Received
from broker.keeping.room_removing import remove
from broker.keeping.room_scan import Scan
from broker.wire.streams import STREAM

__all__ = ["Drop", "Making", "Purge"]

_NO_MESSAGE_FOUND = 10037


@dataclass(frozen=True, slots=True)
class Purge:
    """What went of what is received; `is_all` says that nothing like it is left."""

    amount: Amount
    is_all: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """What went although nobody has it, and what of `amount` was received after all; `ranges` name the former."""

    amount: Amount
    purged: Amount
    ranges: tuple[Dropped, ...] = ()


class Making:
    """The hands of the keeper."""

    def __init__(self, connection: Connection, folder: Path, clock: Callable[[], int]) -> None:
        """Touch nothing yet. `folder` is the store's, for the drop book; `clock` tells nanoseconds since the epoch."""
        self._connection = connection
        self._book = DropBook(folder)
        self._clock = clock
        self._is_in_doubt = True

    async def purge(self, info: Mapping[str, Any], received: Received, need: Amount) -> Purge:
        """Take out received messages, the oldest first, as much as is needed or as there is, but the last one of each subject.

        Raises `Rejected`, `ConnectionLost`: some of it may have gone then.
        """
        sweep = Sweep(need, received)
        owners = _Owners(sweep)
        for segment in received.segments(int(info["state"]["first_seq"])):
            scan = Scan(self._connection, segment.first, segment.filters)
            await _look_through(scan, owners, segment.until)
            if sweep.is_done:
                break
        gone = await remove(self._connection, sweep.removals(), info["created"])
        return Purge(gone, not sweep.is_done)

    async def drop(self, info: Mapping[str, Any], received: Received, need: Amount) -> Drop:
        """Take out the oldest messages, whoever has them, but the last one of each subject; name those before that no receiver has.

        Raises OSError where they cannot be named: nothing went then. `Rejected`, `ConnectionLost`.
        """
        await self.settle()
        sweep = Sweep(need)
        state = info["state"]
        scan = Scan(self._connection, int(state["first_seq"]), [">"], origins=True)
        await _look_through(scan, _Owners(sweep), int(state["last_seq"]) + 1)
        lost = [seen for seen in sweep.chosen if not _has(received, seen)]
        ranges = dropped(lost)
        batch = secrets.token_hex(8)
        if ranges:
            self._is_in_doubt = True
            await asyncio.to_thread(self._book.announce, batch, iso(self._clock()), ranges)
        gone = await remove(self._connection, sweep.removals(), info["created"])
        await self.settle()
        named = Amount(sum(one.size for one in ranges), sum(one.messages for one in ranges))
        purged = Amount(max(gone.size - named.size, 0), max(gone.messages - named.messages, 0))
        return Drop(named, purged, tuple(ranges))

    async def settle(self) -> None:
        """Mark what was announced and has gone; say of what is there still that it was not dropped.

        Raises OSError, `Rejected`, `ConnectionLost`.
        """
        if not self._is_in_doubt:
            return
        batches: dict[str, list[Announced]] = {}
        for one in await asyncio.to_thread(self._book.unfinished):
            batches.setdefault(one.batch, [])
            begin = await self._begin(one)
            if begin < one.until:
                batches[one.batch].append(Announced(one.batch, one.subject, begin, one.until))
        for batch, left in batches.items():
            await asyncio.to_thread(self._book.end, batch, iso(self._clock()), left)
        self._is_in_doubt = False

    async def _begin(self, one: Announced) -> int:
        """Return the first sequence of a range that is there still, its end where none is."""
        try:
            answer = await self._connection.api(
                f"STREAM.MSG.GET.{STREAM}", {"seq": one.first, "next_by_subj": one.subject}
            )
        except Rejected as error:
            if error.error != _NO_MESSAGE_FOUND:
                raise
            return one.until
        return min(int(answer["message"]["seq"]), one.until)


class _Owners:
    """Holds the last message of each subject back from a sweep: it says who owns the subject, and what the next one follows.

    Without it an older agent that wakes up late would not be told that a newer one has taken over. Rights name the subjects
    of a host, so that none can make up many.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._last: dict[str, Seen] = {}

    def take(self, seen: Seen) -> None:
        before = self._last.get(seen.subject)
        self._last[seen.subject] = seen
        if before is not None:
            self.sweep.take(before)


async def _look_through(scan: Scan, owners: _Owners, until: int) -> None:
    async with scan:
        while page := await scan.page():
            for seen in page:
                if seen.sequence < until:
                    owners.take(seen)
            if owners.sweep.is_done or page[-1].sequence >= until - 1:
                return


def _has(received: Received, seen: Seen) -> bool:
    return received.has(seen.partition, seen.subject, seen.sequence, seen.stored_at)
