"""Finds the files, reads whole lines from them, and remembers how far it has read (not how far is acknowledged).

    directories --scan--> catalogue --groups--> tailers --read, cut--> blocks
       changes: wake the loop, mark files as changed and scans as due

A look decides what every file is; a gathering only reads, and what it finds doubtful it leaves to the next look.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from nats_logship.app.timestamps import format_time
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.catalogue import Catalogue
from shipper.sources.files.changes import ChangeDetection
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import Sample
from shipper.sources.files.paths import Selection
from shipper.sources.files.reader import Reader, Reading
from shipper.sources.files.sampling import sample
from shipper.sources.files.scan import FileEntry, FileKey, Scan, scan
from shipper.sources.notices import Notice, NoticeKind

_SECOND = 1_000_000_000
_LEAST_SHARE = 256 * 1024  # bytes that each of many files is given at a time
_MOST_FILES = 32  # that share what is gathered at a time
_CLOSING = 1.0  # seconds
Answer = TypeVar("Answer")
_ENOUGH = 200  # blocks: about what a round's headers have room for


class Follower:
    """Follows all files of one host; the read cursors begin at `known`, and files never seen at their beginning.

    `clock` gives nanoseconds since the epoch, `block_size` and `max_line` are bytes, `grace` and `hold` are in seconds. All
    work on files is done by one thread, in the order in which it was asked for.

    `wake` is set on any change. `is_scan_due` says that a file came, went or was renamed or truncated since the last look.
    `has_decided` says that the last look has decided on all that it showed; before, a cursor without a file may yet find it.
    `stored` returns up to which byte a file is stored, by id: a deleted file is held until all that was read of it is.
    `busy_since` is when the thread began what it does, on the clock of the event loop, else None.
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
        self.wake = asyncio.Event()
        self.is_scan_due = True
        self.has_decided = False
        self.busy_since: float | None = None
        self.stored: Callable[[str], int] = lambda _: sys.maxsize
        self._selection = selection
        self._clock = clock
        self._most_files = min(_MOST_FILES, open_files)
        self._catalogue = Catalogue(selection, known, new_id)
        self._reader = Reader(open_files, self._catalogue.tailers)
        self._changes = ChangeDetection(self.wake.set, poll_every, listen)
        self._queue: dict[str, None] = {}  # rotation groups that may have something to read
        self._last: FollowedFile | None = None  # the file that was read last
        self.troubles: list[Notice] = []  # what kept files from being read at the last look
        self._thread = ThreadPoolExecutor(1, "tail")
        self.change_limits(grace, hold)
        self.resize(block_size, max_line)

    async def scan(self) -> list[Notice]:
        """Look at the folders now; return what changed since the last look."""
        return await self._do(self._look)

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that are readable now, and move the read cursors behind them.

        Rotation groups take turns, the oldest file of a group first; nothing comes between the pieces of an over-long line.
        """
        return await self._do(self._gather, budget)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - running out of it is no error here
        """Return when something changed since the last call, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.wake.wait()
        self.wake.clear()

    @property
    def poll_in(self) -> float:
        """After how many seconds to gather again although nothing was heard."""
        return self._changes.patience

    def files(self) -> list[FollowedFile]:
        """Return every followed file as it was last seen."""
        return list(self._catalogue.tailers.values())

    def is_waited_for(self, state: FollowedFile) -> bool:
        """Whether files wait for the end of this one's last line."""
        return state.is_waited_for(self._clock(), self._grace)

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return len(self._reader)

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return where every followed file was begun whose id is not in `but`, also of an empty one.

        It finds the file again although not a line of it was shipped, should the file be renamed before the next start.
        """
        return [t.start for t in self.files() if t.file not in but]

    @property
    def ended_files(self) -> set[str]:
        """The ids of files that nobody misses: rotated and stored to their end, or reported."""
        return set(self._catalogue.ended)

    def change_limits(self, grace: float, hold: float) -> None:
        """Wait as long for the end of a line, or for that of a deleted file, from now on; both in seconds."""
        self._grace, self._hold = int(grace * _SECOND), int(hold * _SECOND)

    def resize(self, block_size: int, max_line: int) -> None:
        """Read blocks and lines of these sizes from now on, in bytes; nothing may be gathering."""
        self._least_share = min(_LEAST_SHARE, block_size)
        self._reader.resize(block_size, max_line)

    async def retarget(self, selection: Selection, known: Cursor | None = None) -> None:
        """Follow another selection from the next look on, which is due then; with `known`, forget all files but that.

        One that is not selected any more is let go at once: its cursor stays known, should it be selected again.
        """
        await self._do(self._retarget, selection, known)
        self.wake.set()

    async def rewind(self, cursors: Mapping[str, Cursor]) -> bool:
        """Read every followed file on from its cursor, or from its start; forget the cursors of all others but these.

        All files stay open. The next look is due. Returns False where a cursor is of a file that this follower does
        not know: another agent read it, and it may be one that is followed by another id.
        """
        is_known = await self._do(self._rewind, cursors)
        self.wake.set()
        return is_known

    async def close(self) -> None:
        """Stop watching and close all files, but those that the thread hangs in."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._do(self._reader.close)
        self._changes.close()

    async def _do(self, work: Callable[..., Answer], *given: object) -> Answer:
        """Do work behind all that was asked for before; what is cancelled meanwhile goes on to its end in the thread."""
        self._changes.listen()
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._run, work, given
        )

    # what the thread does

    def _run(self, work: Callable[..., Answer], given: Iterable[object]) -> Answer:
        self.busy_since = time.monotonic()
        try:
            return work(*given)
        finally:
            self.busy_since = None

    def _retarget(self, selection: Selection, known: Cursor | None) -> None:
        self._catalogue.retarget(selection, known)
        self._selection = selection
        self._start_over()

    def _rewind(self, cursors: Mapping[str, Cursor]) -> bool:
        is_known = self._catalogue.rewind(cursors, self._clock())
        if is_known:
            self._start_over()
        return is_known

    def _start_over(self) -> None:
        self.has_decided = False
        self._resume()
        self._reader.trim()
        self.is_scan_due = True

    def _look(self) -> list[Notice]:
        self._hear()
        self.is_scan_due = False
        try:
            places = self._catalogue.places()
            self._look_at(self._clock(), time.monotonic())
            if self._catalogue.places().keys() - places.keys() - self._catalogue.lives.keys():
                # a file was found in another folder, where its siblings may be as well
                self._look_at(self._clock(), time.monotonic())
        except OSError as error:  # nothing was seen, so nothing is known to be gone
            self.is_scan_due = True
            text = f"cannot be listed now: {error.strerror}"
            self._tell_new([Notice(NoticeKind.UNREADABLE, str(error.filename), text)])
        notices, self._catalogue.notices = self._catalogue.notices, []
        return notices

    def _look_at(self, now: int, began: float) -> None:
        catalogue = self._catalogue
        shown = scan(self._selection, catalogue.places(), catalogue.sought)
        catalogue.scanned(shown, now)
        self._compare_written()
        asked = catalogue.to_sample()
        from_end = self._selection.from_end and catalogue.scanned_at is None
        found = sample(asked, from_end=from_end)
        held = self._moved_groups(shown, asked, found)
        self.has_decided = not held
        self.is_scan_due |= bool(held)
        refused = [seen for seen in found.values() if isinstance(seen, Notice)]
        self._tell_new([*shown.troubles, *refused])
        for tailer in catalogue.tailers.values():
            for text in tailer.take_remarks():
                catalogue.tell(NoticeKind.CONTENT, tailer.entry.path, text)
        for tailer in catalogue.unseen(held):
            if shown.refuses(tailer.entry):
                catalogue.leave(tailer)
            else:
                self._let_go(tailer, now)
        samples = [seen for seen in found.values() if isinstance(seen, Sample)]
        catalogue.settle(samples, held, now, self.stored)
        tailers = catalogue.tailers.values()
        catalogue.note_ended([one.file for one in tailers if self._is_ended(one, now)])
        self._reader.trim()
        self._reader.open_early(self.stored)
        self._reader.learn_content(catalogue.tailers.values())
        self._queue.update(dict.fromkeys(catalogue.chains))
        seen = (tailer.entry for tailer in tailers if tailer.unseen_since is None)
        catalogue.notices += self._changes.follow(shown.folders, seen, time.monotonic() - began)
        self._resume()

    def _compare_written(self) -> None:
        """Find out which files were written anew in place: they were written to, did not grow, and are at rest now."""
        for tailer in self._catalogue.tailers.values():
            if not (tailer.is_due and tailer.is_open):
                continue
            if (is_same := self._reader.has_its_content(tailer)) is not None:
                tailer.note_comparison(is_same)

    def _resume(self) -> None:
        """Go on in the line that was read last, where the offset of a file is in a line."""
        begun = (tailer for tailer in self._catalogue.tailers.values() if tailer.in_line)
        self._last = max(begun, key=lambda tailer: tailer.seen, default=None)

    def _tell_new(self, troubles: Iterable[Notice]) -> None:
        """Have those of the troubles said that the last look did not have."""
        before = self.troubles
        self.troubles = sorted(set(troubles), key=lambda notice: (notice.path, notice.text))
        self._catalogue.notices += [notice for notice in self.troubles if notice not in before]

    def _moved_groups(
        self, shown: Scan, asked: Collection[FileEntry], found: Container[FileKey]
    ) -> set[str]:
        """Return the groups whose files moved on during the look, so that nothing can be decided about them."""
        unsure = {entry.group for entry in asked if entry.key not in found}
        concerned = {entry.group for entry in asked}
        concerned |= {tailer.entry.group for tailer in self._catalogue.unseen()}
        if not concerned:
            return set()
        again = scan(self._selection, self._catalogue.places(), self._catalogue.sought)
        seen = {entry.key.inode for entry in shown.entries}
        return unsure | {e.group for e in again.entries if e.key.inode not in seen} & concerned

    def _let_go(self, tailer: FollowedFile, now: int) -> None:
        """Stop following a deleted file that is done with.

        It goes once it is settled, and read and stored to its end, or was held too long; one that was truncated and written
        anew is followed as another file.
        """
        how = "is gone"
        if tailer.is_open:
            reading = self._reader.read(tailer, 0)
            tailer.unseen(reading, now)
            tailer.is_linked = os.fstat(tailer.descriptor).st_nlink > 0
            if reading.size and not reading.intact:
                seen = Sample(tailer.entry, reading.size, reading.run, {})
                self._reader.hand_over(tailer, self._catalogue.begin_anew(tailer, seen, now))
                return
        if tailer.is_open and not tailer.suspect:
            since = tailer.unseen_since or now
            if now - since > self._hold:
                what = "moved out of sight" if tailer.is_linked else "deleted"
                how = (
                    f"was {what} before {format_time(since, 'seconds')} and is held open no longer"
                )
            elif self._is_kept(tailer, now):
                if tailer.entry.compression is None:
                    tailer.mark_changed(now)
                return
        lost, what = tailer.end - tailer.offset, "read to its end"
        if lost:
            what = f"bytes {tailer.offset} to {tailer.end} were not read"
        self._catalogue.leave(tailer)
        self._catalogue.ended.add(tailer.file)
        self._catalogue.tell(NoticeKind.GONE, tailer.entry.path, f"{how}, {what}", lost)

    def _is_kept(self, tailer: FollowedFile, now: int) -> bool:
        """Whether a file without a path is held open: to be read or stored, or written to yet."""
        is_written = tailer.is_linked and self._reader.has_space
        is_read = not (tailer.dirty or tailer.held) and tailer.is_settled(now, self._grace)
        return is_written or not (is_read and tailer.offset <= self.stored(tailer.file))

    def _is_ended(self, tailer: FollowedFile, now: int) -> bool:
        """Whether a file was rotated away, and all of it is stored."""
        is_read = tailer.is_settled(now, self._grace) and not tailer.held
        return is_read and tailer.end <= tailer.offset <= self.stored(tailer.file)

    def _gather(self, budget: int) -> list[Block]:
        self._hear()
        blocks: list[Block] = []
        while (budget > 0 or not blocks) and len(blocks) < _ENOUGH and (turn := self._turn()):
            share = max(self._least_share, budget // len(turn))
            for tailer in turn:
                # among other files' lines an over-long one is shipped when all of it is there
                is_alone = len(self._catalogue.tailers) == 1
                in_pieces = is_alone or tailer.is_settled(self._clock(), self._grace)
                reading = self._reader.read(tailer, share, in_pieces=in_pieces)
                budget -= len(reading.run) + reading.held
                blocks += self._accept(tailer, reading)
                if budget <= 0 or tailer.in_line:
                    break
        return blocks

    def _hear(self) -> None:
        """Take note of what happened since the last time."""
        written, is_due = self._changes.hear()
        self.is_scan_due |= is_due
        tailers = self._catalogue.tailers
        for tailer in [tailers[key] for key in written if key in tailers]:
            if tailer.entry.compression is None:
                tailer.mark_changed(self._clock())
                self._queue[tailer.chain] = None
            else:
                self.is_scan_due = True  # a look decides whether to decompress it again

    def _turn(self) -> list[FollowedFile]:
        """Open the files to read next; one that cannot be opened is left to the next look, with its group."""
        tailers = self._next()
        self._reader.open(tailers)
        for tailer in tailers:
            if not tailer.is_open:
                self._queue.pop(tailer.chain, None)
                self.is_scan_due = True
        return [tailer for tailer in tailers if tailer.is_open]

    def _next(self) -> list[FollowedFile]:
        """Return the files to read next, the oldest of each group; groups that have nothing to read leave the queue.

        One compressed file at most, since each takes memory to decompress.
        """
        if (last := self._last) is not None and last.in_line and last.dirty and not last.suspect:
            return [last]
        ready: list[FollowedFile] = []
        for group in list(self._queue):
            first = self._first(self._catalogue.chains.get(group, ()))
            if first is None:
                del self._queue[group]
            elif (first.dirty or first.is_settled(self._clock(), self._grace)) and not (
                first.entry.compression and any(one.entry.compression for one in ready)
            ):
                ready.append(first)
            if len(ready) >= self._most_files:
                break
        return ready

    def _first(self, chain: Iterable[FollowedFile]) -> FollowedFile | None:
        # which file those behind it wait for; behind a doubtful one nobody knows what comes next
        now = self._clock()
        for tailer in chain:
            if tailer.suspect:
                return None
            is_due = tailer.held and tailer.is_settled(now, self._grace)
            if tailer.dirty or is_due or tailer.is_waited_for(now, self._grace):
                return tailer
        return None

    def _accept(self, tailer: FollowedFile, reading: Reading) -> list[Block]:
        blocks = tailer.accept(reading, self._clock(), self._grace)
        if tailer.lost is not None:
            path, lost = tailer.entry.path, tailer.lost
            self._catalogue.tell(NoticeKind.DAMAGED, path, tailer.note, lost)
            tailer.lost, self.is_scan_due = None, True
        self.is_scan_due |= tailer.suspect
        group, self._last = tailer.chain, tailer
        if tailer.entry.compression is None:  # a compressed file is read to its end
            self._queue.pop(group, None)
        self._queue[group] = None
        return blocks
