"""Finds the files, reads whole lines from them, and remembers how far it has read (not how far is acknowledged).

    directories --scan--> catalogue --groups--> tailers --read, cut--> blocks
       changes: wakes, marks files as changed and scans as due

Publishes nothing. A scan decides what every file is; a gathering only reads, and what it finds doubtful it leaves to the
next scan.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from shipper.positions import Cursor
from shipper.tail.catalogue import Catalogue
from shipper.tail.changes import ChangeDetection
from shipper.tail.identity import HEAD_BYTES
from shipper.tail.notices import Notice, NoticeKind, Troubles
from shipper.tail.open_files import Handles
from shipper.tail.paths import Selection
from shipper.tail.probe import Ask, Sample, sample
from shipper.tail.reader import Block, Limits, Reader, Reading
from shipper.tail.scan import FileKey, Scan, changed_since, scan
from shipper.tail.tailer import FileState, Tailer
from shipper.tail.turns import MOST_PER_TURN, Gathering, WakeUp

__all__ = ["Follower", "Leaving", "Picture", "departure", "look"]

_TRIES = 3
"""How often a picture is taken anew at once when files moved on meanwhile."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen; `is_restless` says that another look is due, since the catalogue holds some groups until then."""

    shown: Scan
    samples: dict[FileKey, Sample]
    refused: list[Notice]
    notices: list[Notice]
    is_restless: bool


async def look(
    selection: Selection, catalogue: Catalogue, now: int, is_open: Callable[[FileKey], bool]
) -> Picture:
    """Look at the folders and at what must be glimpsed at there, for the catalogue to settle; raises OSError as `scan` does."""
    notices: list[Notice] = []
    for _ in range(_TRIES):
        shown = await asyncio.to_thread(scan, selection, tuple(catalogue.lives))
        asks, said = catalogue.scanned(shown.entries, now, is_open)
        notices += said
        found = await _glimpse(asks) if asks else {}
        restless = {ask.entry.group for ask in asks if ask.entry.key not in found}
        if groups := catalogue.concerned(asks):
            restless |= await asyncio.to_thread(changed_since, shown, groups, selection)
        if not restless:
            break
    catalogue.hold(restless)
    samples = {key: seen for key, seen in found.items() if isinstance(seen, Sample)}
    refused = [seen for seen in found.values() if isinstance(seen, Notice)]
    return Picture(shown, samples, refused, notices, bool(restless))


async def _glimpse(asks: Sequence[Ask]) -> dict[FileKey, Sample | Notice]:
    over = threading.Event()
    try:
        return await asyncio.to_thread(sample, asks, over.is_set)
    finally:
        over.set()


_SECOND = 1_000_000_000


def departure(
    tailer: Tailer, reading: Reading | None, stored: int, now: int, limits: Limits
) -> Notice | None:
    """Return what to say of a deleted file that is to be let go; None while it is to be kept open.

    `reading` is None where it is open no longer. It goes once it is settled, and read and `stored` to its end, or holds
    other content than was read, and in any case when it has been held too long, since its space on disk is taken meanwhile.
    """
    if reading is not None and not tailer.suspect:
        since = tailer.unseen_since
        if since is not None and now - since > limits.hold:
            return _overdue(tailer, reading.size, since)
        if tailer.dirty or tailer.held or not tailer.is_settled(now, limits.grace):
            return None
        if not tailer.is_stored(stored):
            return None
    lost = tailer.unread
    text = f"is gone, {lost} bytes were not read" if lost else "is gone, read to its end"
    return Notice(NoticeKind.GONE, tailer.entry.path, text, lost)


def _overdue(tailer: Tailer, size: int, since: int) -> Notice:
    lost = max(tailer.unread, size - tailer.offset)
    end = tailer.offset + lost
    text = f"was deleted before {_time(since)} and is held open no longer"
    text += f": bytes {tailer.offset} to {end} were not read" if lost else ", read to its end"
    if lost:
        text += f", and have waited since {_time(tailer.stirred)}"
    return Notice(NoticeKind.GONE, tailer.entry.path, text, lost)


def _time(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // _SECOND, UTC)
    return moment.isoformat().replace("+00:00", "Z")


class Leaving:
    """Goes through the files of a catalogue that the last look did not show."""

    def __init__(
        self, catalogue: Catalogue, handles: Handles, reader: Reader, wake_up: WakeUp
    ) -> None:
        self._catalogue = catalogue
        self._handles = handles
        self._reader = reader
        self._wake_up = wake_up

    async def let_go(self, now: int, limits: Limits, stored: Callable[[str], int]) -> list[Notice]:
        """Let go of those that are done with; return what there is to say. `now` is in nanoseconds."""
        notices = []
        for tailer in self._catalogue.unseen():
            reading = await self._probe(tailer)
            said = departure(tailer, reading, stored(tailer.file), now, limits)
            if said is None:
                tailer.unseen(now, 0 if reading is None else reading.modified)
                self._wake_up.is_unsettled = True
                continue
            self._catalogue.leave(tailer)
            notices.append(said)
            if reading is not None and reading.size and tailer.suspect:
                head = await self._handles.head(tailer)
                notices += self._catalogue.renew(tailer, head, reading.modified, now)
        return notices

    async def _probe(self, tailer: Tailer) -> Reading | None:
        # truncated and then deleted: its rest may be in a copy, and what was written since is still open
        if tailer.entry.key not in self._handles:
            return None
        descriptor = await self._handles.descriptor(tailer)
        if descriptor is None:
            return None
        if tailer.entry.packed is not None:
            return Reading(True, tailer.entry.size, tailer.entry.modified)
        reading = (await self._reader.read([tailer.probe(descriptor)]))[0]
        tailer.suspect |= not reading.intact
        if len(tailer.beginning) < HEAD_BYTES and not (tailer.suspect or reading.error):
            tailer.glimpsed(await self._handles.head(tailer))
        return reading


_CLOSING = 1.0  # seconds


def _glimpse_at(descriptor: int, cursor: Cursor) -> tuple[int, bytes, bytes]:
    """Return the size of an open file, its first bytes, and those before a cursor; no bytes where they cannot be read."""
    status = os.fstat(descriptor)
    length = min(cursor.identity.tail_length, cursor.offset)
    try:
        head = os.pread(descriptor, HEAD_BYTES, 0)
        tail = os.pread(descriptor, length, cursor.offset - length)
    except OSError:
        head = tail = b""
    return status.st_size, head, tail


class Follower:
    """Follows all files of one host; the read cursors begin at `known`, and files never seen at their beginning.

    `clock` gives nanoseconds since the epoch, `block_size` and `max_line` are bytes, `grace` and `hold` are in seconds. One
    task at a time may look or gather; another waits. `is_oriented` says that the last look has decided on all that it showed;
    before, a cursor without a file may yet find it. `stored` returns up to which byte a file is stored, by id: a deleted file is
    held until all that was read of it is.
    """

    def __init__(
        self,
        selection: Selection,
        known: Iterable[Cursor],
        *,
        new_id: Callable[[], str],
        clock: Callable[[], int],
        block_size: int = 256 * 1024,
        max_line: int = 1024 * 1024,
        grace: float = 5.0,
        hold: float = 6 * 3600.0,
        open_files: int = 500,
        poll_every: float = 1.0,
        listen: bool = True,
    ) -> None:
        self.is_oriented = False
        self.stored: Callable[[str], int] = lambda _: sys.maxsize
        self._selection = selection
        self._clock = clock
        self._limits = Limits(block_size, max_line, 0, open_files)
        self._limits = self._lasting(grace, hold)
        self._catalogue = Catalogue(selection, known, new_id)
        self._handles = Handles(open_files)
        self._troubles = Troubles()
        self._attention = ChangeDetection(self._handles, self._heard, poll_every, listen)
        self._wake_up = wake_up = WakeUp()
        reader = Reader(MOST_PER_TURN, self._limits)
        self._leaving = Leaving(self._catalogue, self._handles, reader, wake_up)
        self._gathering = Gathering(
            self._catalogue,
            self._handles,
            reader,
            wake_up,
            is_growing=self._attention.is_growing,
            clock=clock,
        )
        self._lock = asyncio.Lock()

    async def look(self) -> list[Notice]:
        """Look at the folders now; return what changed since the last look."""
        # one that is cancelled goes on to its end, since its threads work on the open files; `rewind` waits for that
        return await asyncio.shield(self._look())

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that are readable now, and move the read cursors behind them.

        Takes turns over the chains, within a chain oldest first; nothing comes between the pieces of an over-long line,
        in this gathering and the next, unless its rest takes long to be written. Empty when there is nothing to read
        or, as `is_waiting` then says, when it is the turn of such a rest or a compressed file is unpacked up to its own.
        """
        return await asyncio.shield(self._gather(budget))

    @property
    def wake(self) -> asyncio.Event:
        """Set on any change."""
        return self._wake_up.wake

    @property
    def look_due(self) -> bool:
        """Whether a file came, went or was renamed or truncated since the last look."""
        return self._wake_up.look_due

    @property
    def is_unsettled(self) -> bool:
        """Whether a file that was rotated or deleted waits for its end."""
        return self._wake_up.is_unsettled

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - running out of it is no error here
        """Return when something changed since the last call, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wake_up.wake.wait()
        self._wake_up.wake.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to gather soon: behind a long way through a compressed file, or an over-long line.

        All files wait for the rest of such a line, which is still being written; a second at most.
        """
        return self._gathering.is_waiting

    @property
    def patience(self) -> float:
        """After how many seconds to gather again although nothing was heard."""
        return self._attention.patience

    def states(self) -> list[FileState]:
        """Return every followed file as it was last seen."""
        return [tailer.state() for tailer in self._catalogue.tailers.values()]

    def troubles(self) -> list[Notice]:
        """Return what kept files from being read at the last look."""
        return self._troubles.now()

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return len(self._handles)

    def passed_over(self) -> list[str]:
        """Return the paths of the files that are not followed because they were not written for long."""
        return [entry.path for entry in self._catalogue.passed_over()]

    def cursors(self) -> list[Cursor]:
        """Return the read cursor of every followed file, those at 0 as well, of which the stream knows nothing."""
        return [tailer.cursor for tailer in self._catalogue.tailers.values()]

    def starts(self, but: Container[str]) -> list[Cursor]:
        """Return where every followed file was begun whose id is not in `but`, be it empty.

        Whoever remembers it finds the file again although not a line of it was shipped. An empty file's first lines would
        be taken for old ones otherwise, were it begun at its end or renamed before the next start.
        """
        return [t.start for t in self._catalogue.tailers.values() if t.file not in but]

    def change_limits(self, grace: float, hold: float) -> None:
        """Wait as long for the end of a line, or for that of a deleted file, from now on; both in seconds."""
        self._limits = self._lasting(grace, hold)

    async def retarget(self, selection: Selection) -> None:
        """Follow another selection from the next look on, which is due then.

        What it shows still is read on where it is. What it shows no longer is let go at once and not called lost: its
        cursor stays known, should it be named again.
        """
        async with self._lock:
            self._selection = selection
            self.is_oriented = False
            self._catalogue.retarget(selection)
            self._gathering.turns.resume(self._catalogue.tailers.values())
            await self._handles.trim(self._catalogue.tailers)
        self._wake_up.call_to_look()

    async def turn_to(self, selection: Selection, known: Cursor) -> None:
        """Follow another selection from the next look on, which is due then, and forget all files but the one at `known`."""
        async with self._lock:
            self._selection = selection
            self.is_oriented = False
            self._catalogue.turn_to(selection, known)
            self._gathering.turns.resume(())
            await self._handles.trim({})
        self._wake_up.call_to_look()

    async def rewind(self, cursors: Mapping[str, Cursor]) -> bool:
        """Read every followed file on from its cursor, or from where it was begun; forget the cursors of all others but these.

        All files stay open. The next look is due. Returns False where a cursor is of a file that this follower does
        not know: another agent read it, and it may be one that is followed by another id.
        """
        async with self._lock:
            tailers, known = self._catalogue.tailers, self._catalogue.files()
            if any(one.offset and one.file not in known for one in cursors.values()):
                return False
            moved = {}
            for key, tailer in tailers.items():
                cursor = cursors.get(tailer.file, tailer.start)
                if not tailer.is_at(cursor):
                    moved[key] = await self._rewound(tailer, cursor)
            self._catalogue.rewind(cursors, moved)
            self.is_oriented = False
            self._gathering.turns.resume(tailers.values())
        self._wake_up.call_to_look()
        return True

    async def close(self) -> None:
        """Stop watching and close all files, but those that a thread hangs in."""
        await self._attention.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING), self._lock:
                await self._handles.trim({})

    async def _gather(self, budget: int) -> list[Block]:
        async with self._lock:
            self._gathering.stir(await self._attention.glance(self._catalogue.tailers))
            return await self._gathering.gather(budget, self._limits)

    async def _rewound(self, tailer: Tailer, cursor: Cursor) -> Tailer | None:
        descriptor = await self._handles.descriptor(tailer)
        if descriptor is None:
            return None
        found = None
        if tailer.entry.packed is None:
            found = await asyncio.to_thread(_glimpse_at, descriptor, cursor)
        return tailer.rewound(cursor, found, self._clock())

    async def _look(self) -> list[Notice]:
        async with self._lock:
            return await self._look_at(self._clock())

    async def _look_at(self, now: int) -> list[Notice]:
        wake_up = self._wake_up
        wake_up.look_due = wake_up.is_unsettled = False
        try:
            seen = await look(self._selection, self._catalogue, now, self._handles.__contains__)
        except OSError as error:  # nothing was seen, so nothing is known to be gone
            wake_up.look_due = True
            text = f"cannot be listed now: {error.strerror}"
            return self._troubles.changes(
                [Notice(NoticeKind.UNREADABLE, str(error.filename), text)]
            )
        gone = await self._leaving.let_go(now, self._limits, self.stored)
        wake_up.look_due |= seen.is_restless
        notices = [*seen.notices, *self._troubles.changes((*seen.shown.troubles, *seen.refused))]
        notices += self._catalogue.settle(seen.samples, now) + gone + self._gathering.take_losses()
        self.is_oriented = not seen.is_restless
        await self._handles.open_early(self._catalogue.tailers.values())
        await self._handles.trim(self._catalogue.tailers)
        self._gathering.turns.join(self._catalogue.chains)
        notices += await self._attention.follow(seen.shown.folders, self._catalogue.tailers, now)
        self._gathering.turns.resume(self._catalogue.tailers.values())
        return notices

    def _lasting(self, grace: float, hold: float) -> Limits:
        return replace(self._limits, grace=int(grace * _SECOND), hold=int(hold * _SECOND))

    def _heard(self, files: Iterable[FileKey], moved: bool) -> None:
        self._gathering.stir(files)
        self._wake_up.look_due |= moved
        self._wake_up.wake.set()
