"""Follows all files of one host: the front door of this package, for the event loop.

All work on files is done by one thread, in the order in which it is asked for. The follower knows
how far files are read, not how far they are acknowledged.
"""

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.changes import ChangeDetection
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.paths import Selection
from shipper.sources.files.records import LINES_ALONE, RecordRules
from shipper.sources.files.tracker import Tracker
from shipper.sources.notices import Notice
from shipper.timer import wait_for_event

_CLOSING = 1.0  # seconds
Answer = TypeVar("Answer")


class Follower:
    """Follows all files of one host.

    Reading begins at the `known` cursors, and unknown files at their beginning. `clock` gives
    nanoseconds since the epoch, `block_size` and `max_line` are bytes, `grace` and `hold` seconds.

    `wake` is set on any change. `busy_since` is when the thread began what it does, on the clock of
    the event loop; None if it does nothing.
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
        records: RecordRules = LINES_ALONE,
        open_files: int = 500,
        poll_every: float = 1.0,
        listen: bool = True,
    ) -> None:
        self.wake = asyncio.Event()
        self.busy_since: float | None = None
        self._most_open = open_files
        self._changes = ChangeDetection(self.wake.set, poll_every, listen)
        self._tracker = Tracker(selection, known, new_id, clock, self._changes)
        self._thread = ThreadPoolExecutor(1, "files")
        self.change_limits(grace, hold, records)
        self.resize(block_size, max_line)

    # the loop of a program

    async def scan(self) -> list[Notice]:
        """Scan the folders now; return what changed since the last scan."""
        return await self._do(self._tracker.scan)

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that can be read now, and move the read cursors.

        Chains of files take part in each call, the oldest file of a chain first. The pieces of an
        over-long line follow one another.
        """
        return await self._do(self._tracker.gather, budget)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - its end is no error here
        """Return when something changed since the last call, or after `timeout` seconds."""
        self._changes.await_change()
        await wait_for_event(self.wake, timeout)
        self.wake.clear()

    @property
    def is_scan_due(self) -> bool:
        """Whether a file came, went, or was renamed or truncated since the last scan.

        Also once the poll interval is over.
        """
        return self._tracker.is_scan_due or self._changes.poll_in <= 0

    @property
    def has_decided(self) -> bool:
        """Whether the last scan decided on all files that it saw.

        If not, a cursor without a file may yet find its file.
        """
        return self._tracker.has_decided

    @property
    def poll_in(self) -> float:
        """The seconds after which to gather again even if nothing changes."""
        return min(self._changes.poll_in, max(0.0, self._tracker.record_due_in))

    async def close(self) -> None:
        """Stop watching and close all files, but for one in whose file system the thread hangs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._do(self._tracker.close)
        self._changes.close()

    # what it knows

    def files(self) -> list[FollowedFile]:
        """Return every followed file as it was seen last."""
        return list(self._tracker.files.values())

    def is_waited_for(self, file: FollowedFile) -> bool:
        """Whether other files, or whole lines, wait for the end of this one's last record."""
        return self._tracker.is_waited_for(file)

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return where each followed file began, also an empty one, but for the ids in `but`.

        The next start finds the file by it, if the file is renamed before a line of it is shipped.
        """
        return [file.progress.start for file in self.files() if file.file not in but]

    @property
    def ended_files(self) -> set[str]:
        """The ids of files that are rotated and stored to their end, or whose loss was reported."""
        return self._tracker.ended

    @property
    def troubles(self) -> list[Notice]:
        """What kept files from being read at the last scan."""
        return self._tracker.troubles

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return self._tracker.open_files

    # what it is to do

    @property
    def stored(self) -> Callable[[str], int]:
        """Return up to which byte a file is stored, by its id.

        A deleted file is held open until all that was read of it is stored.
        """
        return self._tracker.stored

    @stored.setter
    def stored(self, stored: Callable[[str], int]) -> None:
        self._tracker.stored = stored

    def change_limits(self, grace: float, hold: float, records: RecordRules) -> None:
        """Wait `grace` seconds for the end of a line; hold a deleted file for `hold` seconds.

        Records are cut by these rules from the next read on.
        """
        self._tracker.set_limits(grace, hold, records)

    def resize(self, block_size: int, max_line: int) -> None:
        """Read blocks and lines of these sizes from now on, in bytes; nothing may be gathering."""
        self._tracker.resize(block_size, max_line, self._most_open)

    async def retarget(self, selection: Selection, known: Cursor | None = None) -> None:
        """Follow another selection from the next scan on, which is due at once.

        A file that is not selected any more is closed; its cursor stays known. With `known`, all
        files but that are forgotten.
        """
        await self._do(self._tracker.retarget, selection, known)
        self.wake.set()

    async def rewind(self, cursors: Mapping[str, Cursor]) -> bool:
        """Read every followed file on from its cursor, or from its start; forget other cursors.

        All files stay open. The next scan is due. Returns False, and does nothing, if a cursor is
        of a file that this follower does not know: another agent read it.
        """
        is_known = await self._do(self._tracker.rewind, cursors)
        self.wake.set()
        return is_known

    async def _do(self, work: Callable[..., Answer], *given: object) -> Answer:
        """Do work in the thread; if the caller is cancelled, the thread goes on to the end."""
        self._changes.listen()
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._run, work, given
        )

    def _run(self, work: Callable[..., Answer], given: Iterable[object]) -> Answer:
        self.busy_since = time.monotonic()
        try:
            return work(*given)
        finally:
            self.busy_since = None
