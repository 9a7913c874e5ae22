"""Follows all files of one host: the front door of this package, for the event loop.

All work on files is done by one thread, in the order in which it is asked for. The follower knows
how far files are read, not how far they are acknowledged.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.changes import ChangeDetection
from shipper.sources.files.paths import Selection
from shipper.sources.files.records import LINES_ALONE, RecordRules
from shipper.sources.files.tracker import Tracker
from shipper.sources.notices import Notice
from shipper.sources.source import Source, SourceState
from shipper.sources.worker import Worker

_CLOSING = 1.0  # seconds


class Follower(Source):
    """Follows all files of one host.

    Reading begins at the `known` cursors, and unknown files at their beginning. `clock` gives
    nanoseconds since the epoch, `block_size` and `max_line` are bytes, `grace` and `hold` seconds.
    `is_only`: the host has no other source.
    """

    def __init__(
        self,
        selection: Selection,
        known: Iterable[Cursor],
        *,
        new_id: Callable[[], str],
        clock: Callable[[], int],
        wake: asyncio.Event | None = None,
        block_size: int = 256 * 1024,
        max_line: int = 1024 * 1024,
        grace: float = 5.0,
        hold: float = 6 * 3600.0,
        records: RecordRules = LINES_ALONE,
        open_files: int = 500,
        poll_every: float = 1.0,
        listen: bool = True,
        is_only: bool = True,
    ) -> None:
        self.wake = wake or asyncio.Event()
        self._most_open = open_files
        self._changes = ChangeDetection(self.wake.set, poll_every, listen)
        self._tracker = Tracker(selection, known, new_id, clock, self._changes)
        self._tracker.is_only = is_only
        self._worker = Worker("files")
        self.change_limits(grace, hold, records)
        self.resize(block_size, max_line)

    # the loop of a program

    async def scan(self) -> list[Notice]:
        """Scan the folders now; return what changed since the last scan."""
        self._changes.listen()
        return await self._worker.do(self._tracker.scan)

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that can be read now, and move the read cursors.

        Chains of files take part in each call, the oldest file of a chain first. The pieces of an
        over-long line follow one another.
        """
        return await self._worker.do(self._tracker.gather, budget)

    def await_change(self) -> None:
        """Have `wake` set at the next change, or one since the last gathering."""
        self._changes.await_change()

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

    @property
    def is_inside_line(self) -> bool:
        """Whether the file that was read last goes on inside an over-long line."""
        return self._tracker.interrupted is not None

    @property
    def has_ended(self) -> bool:
        """False: files may always be written to, and new ones come."""
        return False

    async def close(self) -> list[str]:
        """Stop watching and close all files, but for one in whose file system the thread hangs.

        What was not read is there at the next start, but for deleted files, which it reports.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._worker.do(self._tracker.close)
        self._changes.close()
        return []

    def owns(self, cursor: Cursor) -> bool:
        """Whether it is a file's: their paths are absolute."""
        return cursor.path.startswith("/")

    # what it knows

    def files(self) -> list[SourceState]:
        """Return every followed file as it was seen last."""
        return self._tracker.list_states()

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return where each followed file began, also an empty one, but for the ids in `but`.

        The next start finds the file by it, if the file is renamed before a line of it is shipped.
        """
        files = self._tracker.files.values()
        return [file.progress.start for file in files if file.file not in but]

    @property
    def ended_files(self) -> set[str]:
        """The ids of files that are rotated and stored to their end, or whose loss was reported."""
        return self._tracker.ended

    @property
    def deleted_files(self) -> list[str]:
        """The ids of files that were deleted and are not open any more, oldest first."""
        return self._tracker.deleted

    @property
    def busy_since(self) -> float | None:
        """When the present scan or read began, by the clock of the event loop."""
        return self._worker.busy_since

    @property
    def troubles(self) -> list[Notice]:
        """What kept files from being read at the last scan."""
        return self._tracker.troubles

    @property
    def obstacle(self) -> str:
        """Empty: files that cannot be read are `troubles`, and keep no others waiting."""
        return ""

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

    async def retarget(self, selection: Selection) -> None:
        """Follow another selection from the next scan on, which is due at once.

        A file that is not selected any more is closed; its cursor stays known.
        """
        await self._worker.do(self._tracker.retarget, selection)
        self.wake.set()

    async def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read every followed file on from its cursor, or from its start; forget other cursors.

        All files stay open, and the next scan is due. If a cursor is of a file that this follower
        does not know, as another agent read it, all files are closed, and found again.
        """
        await self._worker.do(self._tracker.rewind, cursors)
        self.wake.set()
