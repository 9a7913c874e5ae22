"""Finds the files, reads whole lines from them, and remembers how far it has read (not how far is acknowledged).

    folders --scan--> roster --chains--> tailers --read, cut--> blocks
       watcher: wakes, marks files as changed and looks as due

Publishes nothing. A look decides what every file is; a gathering only reads, and what it finds doubtful it leaves to the next look.
"""

import asyncio
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import replace

from shipper.block import Block
from shipper.cursor import Cursor
from shipper.files.handles import Handles
from shipper.files.limits import Limits
from shipper.files.reader import Reader
from shipper.files.selection import Selection
from shipper.files.sighting import FileKey
from shipper.filestate import FileState
from shipper.following.attention import Attention
from shipper.following.gathering import Gathering
from shipper.following.leaving import Leaving
from shipper.following.picture import look
from shipper.following.roster import Roster
from shipper.following.summons import Summons
from shipper.following.troubles import Troubles
from shipper.following.turns import MOST_PER_TURN
from shipper.notice import Notice, NoticeKind

__all__ = ["Follower"]

_SECOND = 1_000_000_000


class Follower:
    """Follows all files of one host; the read cursors begin at `known`, and files never seen at their beginning.

    `clock` gives nanoseconds since the epoch, `block_size` and `max_line` are bytes, `grace` and `hold` are in seconds. One
    task at a time may look or gather; another waits. `is_oriented` says that the last look has decided on all that it showed;
    before, a cursor without a file may yet find it.
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
        self._selection = selection
        self._clock = clock
        self._limits = Limits(block_size, max_line, 0, open_files)
        self._limits = self._lasting(grace, hold)
        self._roster = Roster(selection, known, new_id)
        self._handles = Handles(open_files)
        self._troubles = Troubles()
        self._attention = Attention(self._handles, self._heard, poll_every, listen)
        self._summons = summons = Summons()
        reader = Reader(MOST_PER_TURN, self._limits)
        self._leaving = Leaving(self._roster, self._handles, reader, summons)
        self._gathering = Gathering(
            self._roster,
            self._handles,
            reader,
            summons,
            is_growing=self._attention.is_growing,
            clock=clock,
        )
        self._lock = asyncio.Lock()

    async def look(self) -> list[Notice]:
        """Look at the folders now; return what changed since the last look."""
        async with self._lock:
            return await self._look(self._clock())

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that are readable now, and move the read cursors behind them.

        Takes turns over the chains, within a chain oldest first; nothing comes between the pieces of an over-long line,
        in this gathering and the next, unless its rest takes long to be written. Empty when there is nothing to read
        or, as `is_waiting` then says, when it is the turn of such a rest or a compressed file is unpacked up to its own.
        """
        async with self._lock:
            self._gathering.stir(await self._attention.glance(self._roster.tailers))
            return await self._gathering.gather(budget, self._limits)

    @property
    def wake(self) -> asyncio.Event:
        """Set on any change."""
        return self._summons.wake

    @property
    def look_due(self) -> bool:
        """Whether a file came, went or was renamed or truncated since the last look."""
        return self._summons.look_due

    @property
    def is_unsettled(self) -> bool:
        """Whether a file that was rotated or deleted waits for its end."""
        return self._summons.is_unsettled

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - running out of it is no error here
        """Return when something changed since the last call, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._summons.wake.wait()
        self._summons.wake.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to gather soon: behind a long way through a compressed file, or an over-long line.

        All files wait for the rest of such a line, which is still being written; a second at most.
        """
        return self._gathering.is_waiting

    @property
    def patience(self) -> float:
        """After how many seconds to gather again although nothing was heard; infinite while all is listened to."""
        return self._attention.patience

    def states(self) -> list[FileState]:
        """Return every followed file as it was last seen."""
        return [tailer.state() for tailer in self._roster.tailers.values()]

    def troubles(self) -> list[Notice]:
        """Return what kept files from being read at the last look."""
        return self._troubles.now()

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return len(self._handles)

    def passed_over(self) -> list[str]:
        """Return the paths of the files that are not followed because they were not written for long."""
        return [sighting.path for sighting in self._roster.passed_over()]

    def cursors(self) -> list[Cursor]:
        """Return the read cursor of every followed file, those at 0 as well, of which the stream knows nothing."""
        return [tailer.cursor for tailer in self._roster.tailers.values()]

    def starts(self, but: Container[str]) -> list[Cursor]:
        """Return where every followed file was begun whose id is not in `but`, be it empty.

        Whoever remembers it finds the file again although not a line of it was shipped. An empty file's first lines would
        be taken for old ones otherwise, were it begun at its end or renamed before the next start.
        """
        return [t.start for t in self._roster.tailers.values() if t.file not in but]

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
            self._roster.retarget(selection)
            self._gathering.turns.resume(self._roster.tailers.values())
            await self._handles.trim(self._roster.tailers)
        self._summons.call_to_look()

    async def turn_to(self, selection: Selection, known: Cursor) -> None:
        """Follow another selection from the next look on, which is due then, and forget all files but the one at `known`."""
        async with self._lock:
            self._selection = selection
            self.is_oriented = False
            self._roster.turn_to(selection, known)
            self._gathering.turns.resume(())
            await self._handles.trim({})
        self._summons.call_to_look()

    async def close(self) -> None:
        """Stop watching and close all files."""
        await self._attention.close()
        async with self._lock:
            await self._handles.trim({})

    async def _look(self, now: int) -> list[Notice]:
        summons = self._summons
        summons.look_due = summons.is_unsettled = False
        try:
            seen = await look(self._selection, self._roster, now, self._handles.__contains__)
        except OSError as error:  # nothing was seen, so nothing is known to be gone
            summons.look_due = True
            text = f"cannot be listed now: {error.strerror}"
            return self._troubles.changes(
                [Notice(NoticeKind.UNREADABLE, str(error.filename), text)]
            )
        gone = await self._leaving.let_go(now, self._limits)
        summons.look_due |= seen.is_restless
        notices = [*seen.notices, *self._troubles.changes((*seen.shown.troubles, *seen.refused))]
        notices += self._roster.settle(seen.samples, now) + gone + self._gathering.take_losses()
        self.is_oriented = not seen.is_restless
        await self._handles.open_early(self._roster.tailers.values())
        await self._handles.trim(self._roster.tailers)
        self._gathering.turns.join(self._roster.chains)
        notices += await self._attention.follow(seen.shown.folders, self._roster.tailers, now)
        self._gathering.turns.resume(self._roster.tailers.values())
        return notices

    def _lasting(self, grace: float, hold: float) -> Limits:
        return replace(self._limits, grace=int(grace * _SECOND), hold=int(hold * _SECOND))

    def _heard(self, files: Iterable[FileKey], moved: bool) -> None:
        self._gathering.stir(files)
        self._summons.look_due |= moved
        self._summons.wake.set()
