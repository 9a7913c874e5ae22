"""Follows all files of one host: the front door of this package, for the event loop.

    scan ──▶ samples ──▶ decide ──▶ catalogue (states, chains) ──▶ gathering ──▶ blocks

A scan decides what each file is, a gathering reads. All work on files is done by one thread, in the
order in which it is asked for. The follower knows how far files are read, not how far they are
acknowledged.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice, starmap

from nats_logship.wire.positions import Cursor
from shipper.clock import Clock, Now
from shipper.sources.block import Block
from shipper.sources.files.arrivals import Arrival, ArrivedFiles
from shipper.sources.files.catalogue import Catalogue
from shipper.sources.files.changes import ChangeDetection
from shipper.sources.files.decide import Unseen
from shipper.sources.files.file import FollowedFile, ReadLimits
from shipper.sources.files.gathering import Gathering
from shipper.sources.files.identity import FileEntry, FileKey, Sample
from shipper.sources.files.paths import Selection
from shipper.sources.files.reader import FileReader
from shipper.sources.files.records import LINES_ALONE, RecordRules
from shipper.sources.files.sampling import Original, sample
from shipper.sources.files.scan import Scan, scan
from shipper.sources.notices import Notice, NoticeKind
from shipper.sources.source import Source, SourceState
from shipper.sources.worker import Worker

_SECOND = 1_000_000_000
_CLOSING = 1.0  # seconds
_ARRIVAL_SHARE = 4  # files that came are open besides the others: a quarter as many


class Follower(Source):
    """Follows all files of one host.

    A deleted file is held open until all that was read of it is `stored`.
    """

    # How a rotation runs, from its first sight to the successor's first byte. The writer of
    # app.log, which is followed as file A, renames it to app.log.1 and creates app.log.
    #
    #  1. inotify reports the rename, or the poll interval is over: a scan is due.
    #  2. `scan` lists the folders: A's inode is at app.log.1, an unknown inode is at app.log.
    #  3. `Catalogue.note_scan` notes that A was Seen at another path. A stays FOLLOWED; from now
    #     on it is rotated, and the grace for its last line begins when it stops growing.
    #  4. The unknown inode is FOUND. `sample` reads its first bytes, and those of A: if A had been
    #     copied and truncated instead, the sample would show that, and the copy would inherit A's
    #     cursor.
    #  5. `_find_moved` scans again: if files of the group moved meanwhile, the next scan decides.
    #  6. `Catalogue.settle` asks `decide`: the found file is at its live path, so it is FOLLOWED as
    #     file B, from byte 0. `arrange` puts B behind A in their chain.
    #  7. `gather` reads the first file of a chain that has something to read: A to its end. B waits
    #     while A's last record is unfinished, for twice the grace at most.
    #  8. A has nothing to read any more: `gather` reads B's first byte.
    #
    # Later app.log.1 is compressed and deleted. A is Unseen, and DELETED while it is open and not
    # stored. The compressed file is FOUND; it is a COPY of A, or inherits A's cursor if A was not
    # open, so that the rest is read from it.

    def __init__(
        self,
        selection: Selection,
        known: Iterable[Cursor],
        *,
        new_id: Callable[[], str],
        clock: Clock,
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
        """Begin at the `known` cursors, and in unknown files at their beginning.

        `block_size` and `max_line` are bytes, `grace` and `hold` seconds. `is_only`: the host has
        no other source.
        """
        self.wake = wake or asyncio.Event()
        self.stored: Callable[[str], int] = lambda _: sys.maxsize
        self._has_decided = False
        self._troubles: list[Notice] = []
        self._new_id = new_id
        self._clock = clock
        self._is_only = is_only
        self._changes = ChangeDetection(self.wake.set, poll_every, listen)
        self._arrivals = ArrivedFiles(open_files // _ARRIVAL_SHARE if listen else 0)
        self._worker = Worker("files")
        self._limits = ReadLimits(block_size, max_line, open_files)
        self._begin(selection, known)
        self.change_limits(grace, hold, records)

    def _begin(self, selection: Selection, known: Iterable[Cursor]) -> None:
        """Know nothing but these cursors."""
        self._selection = selection
        self._has_scanned, self._is_scan_due = False, True
        self._at_end: set[str] | None = None  # groups that begin at their end; None: all
        self._failed_at: dict[FileKey, int] = {}  # when reading a file failed first
        self._catalogue = Catalogue(selection, known, self._new_id)
        self._memory = self._catalogue.memory
        self._files: Mapping[FileKey, FollowedFile] = self._memory.files
        self._reader = FileReader(self._files, self._limits)
        self._gathering = Gathering(
            self._catalogue, self._reader, self._clock, is_only=self._is_only
        )

    # the loop of a program

    async def scan(self) -> list[Notice]:
        """Scan the folders now; return what changed since the last scan."""
        self._changes.listen()
        return await self._worker.do(self._scan)

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that can be read now, and move the read cursors.

        Chains of files take part in each call, the oldest file of a chain first. The pieces of an
        over-long line follow one another.
        """
        return await self._worker.do(self._gather, budget)

    def _gather(self, budget: int) -> list[Block]:
        self._take_changes()
        return self._gathering.gather(budget)

    def await_change(self) -> None:
        """Have `wake` set at the next change, or one since the last gathering."""
        self._changes.await_change()

    @property
    def is_scan_due(self) -> bool:
        """Whether a file came, went, or was renamed or truncated since the last scan.

        Also once the poll interval is over.
        """
        is_due = self._is_scan_due or self._gathering.is_scan_due
        return is_due or self._changes.poll_in <= 0

    @property
    def poll_in(self) -> float:
        """The seconds after which to gather again even if nothing changes."""
        return min(self._changes.poll_in, self._gathering.record_due_in)

    @property
    def is_inside_line(self) -> bool:
        """Whether the file that was read last goes on inside an over-long line."""
        return self._gathering.interrupted is not None

    async def close(self) -> list[str]:
        """Stop watching and close all files, but for one in whose file system the thread hangs.

        What was not read is there at the next start, but for deleted files, which it reports.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._worker.do(self._reader.close)
        self._changes.close()
        self._arrivals.close()
        return []

    def owns(self, cursor: Cursor) -> bool:
        """Whether it is a file's: their paths are absolute."""
        return cursor.path.startswith("/")

    # what it knows

    def files(self) -> list[SourceState]:
        """Return every followed file as it was seen last."""
        now, limits = self._clock(), self._limits
        return [file.describe(now, limits) for file in list(self._files.values())]

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return where each followed file began, also an empty one, but for the ids in `but`.

        The next start finds the file by it, if the file is renamed before a line of it is shipped.
        """
        # a copy: after a scan a reload may already drop files, in the other thread
        files = list(self._files.values())
        return [file.progress.start for file in files if file.file not in but]

    @property
    def ended_files(self) -> set[str]:
        """The ids of files that are rotated and stored to their end, or whose loss was reported."""
        return set(self._memory.ended)

    @property
    def deleted_files(self) -> list[str]:
        """The ids of files that were deleted and are not open any more, oldest first."""
        return list(self._memory.deleted)

    @property
    def busy_since(self) -> float | None:
        """When the present scan or read began, or advanced last, by the clock of the event loop."""
        return self._worker.busy_since

    @property
    def has_decided(self) -> bool:
        """Whether the last scan decided on all files that it saw.

        If not, a cursor without a file may yet find its file.
        """
        return self._has_decided

    @property
    def troubles(self) -> list[Notice]:
        """What kept files from being read at the last scan."""
        return self._troubles

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return len(self._reader)

    # what it is to do

    def change_limits(self, grace: float, hold: float, records: RecordRules) -> None:
        """Wait `grace` seconds for the end of a line; hold a deleted file for `hold` seconds.

        Records are cut by these rules from the next read on.
        """
        self._limits = self._reader.limits = replace(
            self._limits, grace=int(grace * _SECOND), hold=int(hold * _SECOND), records=records
        )

    def resize(self, block_size: int, max_line: int, max_entry: int) -> None:
        """Read blocks and lines of these sizes from now on, in bytes; nothing may be gathering."""
        self._limits = self._reader.limits = replace(
            self._limits, block_size=block_size, max_line=max_line
        )

    async def retarget(self, selection: Selection) -> None:
        """Follow another selection from the next scan on, which is due at once.

        A file that is not selected any more is closed; its cursor stays known.
        """
        await self._worker.do(self._retarget, selection)
        self.wake.set()

    def _retarget(self, selection: Selection) -> None:
        self._catalogue.retarget(selection)
        self._selection, self._at_end = selection, None
        self._start_over()

    async def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read every followed file on from its cursor, or from its start; forget other cursors.

        All files stay open, and the next scan is due. If a cursor is of a file that this follower
        does not know, as another agent read it, all files are closed, and found again.
        """
        await self._worker.do(self._rewind, cursors)
        self.wake.set()

    def _rewind(self, cursors: Mapping[str, Cursor]) -> None:
        if not (self._has_scanned and self._catalogue.rewind(cursors, self._clock())):
            self._reader.close()
            # files that came since the first scan came after the start
            from_end = self._selection.from_end and not self._has_scanned
            self._begin(replace(self._selection, from_end=from_end), cursors.values())
        self._start_over()

    def _start_over(self) -> None:
        self._has_decided = False
        self._gathering.resume()
        self._reader.trim()
        self._is_scan_due = True

    # scanning

    def _take_changes(self) -> None:
        """Note what was reported since the last time."""
        self._memory.note_time(self._clock())
        written, is_due = self._changes.read_events()
        self._is_scan_due |= is_due
        for file in filter(None, map(self._files.get, written)):
            if file.entry.compression is None:
                self._gathering.note_write(file)
            else:
                self._is_scan_due = True  # a scan decides whether to decompress it again

    def _scan(self) -> list[Notice]:
        """Scan the folders, and decide what each file is; return what changed."""
        self._take_changes()
        self._is_scan_due = self._gathering.is_scan_due = False
        self._has_scanned, memory = True, self._memory
        try:
            before = memory.list_sibling_paths().keys()
            self._scan_once(self._clock(), time.monotonic())
            if memory.list_sibling_paths().keys() - before - memory.live_paths.keys():
                # a file was found in another folder, where its siblings may be as well
                self._scan_once(self._clock(), time.monotonic())
        except OSError as error:  # nothing was seen, so nothing is known to be gone
            self._is_scan_due = True
            text = f"cannot be listed now: {error.strerror}"
            self._report_new([Notice(NoticeKind.UNREADABLE, str(error.filename), text)])
        notices, self._catalogue.notices = self._catalogue.notices, []
        return notices

    def _scan_once(self, now: Now, began: float) -> None:
        catalogue, memory = self._catalogue, self._memory
        came = self._arrivals.opened()
        arrived = dict(islice(came.items(), self._reader.space))
        seen = scan(self._selection, memory.list_sibling_paths(), memory.find_sought)
        were_live = {key for key, arrival in came.items() if arrival.is_live}
        seen = seen._replace(gone=self._find_gone(arrived, seen), were_live=were_live)
        for file in catalogue.note_scan(seen, now, self._reader):
            self._compare(file, now)
        asked = memory.choose_samples(self._reader)
        from_end = self._find_begun_at_end(asked)
        opened = {key: arrival.descriptor for key, arrival in arrived.items()}
        originals = {
            one: Original(opened.get(one.key, self._reader.find_descriptor(one.key)), beginning)
            for one, beginning in memory.find_originals({one.group for one in asked}).items()
        }
        found = sample(asked, from_end=from_end, opened=opened, originals=originals)
        undecided = self._find_moved(seen, asked, found)
        self._is_scan_due |= bool(undecided)
        refused = {one: error for one in asked if isinstance(error := found.get(one.key), OSError)}
        awaited = self._note_refused(refused, now)
        undecided |= awaited - from_end  # at the end of a group no rotated file is read
        self._report_new([*seen.troubles, *starmap(_describe, refused.items())])
        for file in memory.find_unseen(undecided):
            if seen.refuses(file.entry):
                catalogue.leave_out(file)
            else:
                self._note_unseen(file, now)
        samples = [one for one in found.values() if isinstance(one, Sample)]
        # may leave more undecided
        catalogue.settle(samples, undecided, now, self.stored, at_end=from_end)
        self._has_decided = not undecided
        self._at_end = from_end & undecided
        self._keep_open(arrived, undecided)
        self._prepare_reading(now)
        self._watch(seen, undecided, began)

    def _find_begun_at_end(self, asked: Collection[FileEntry]) -> set[str]:
        """Return the groups whose files are begun at their end.

        Those are all groups of the first scan; later only those that it left undecided, since files
        of other groups came after the start.
        """
        groups = {entry.group for entry in asked} if self._selection.from_end else set()
        return groups if self._at_end is None else groups & self._at_end

    def _find_gone(self, arrived: Mapping[FileKey, Arrival], seen: Scan) -> list[FileEntry]:
        """Return the unknown files that came and left their paths before this scan."""
        there = {entry.key for entry in seen.entries}
        unseen = (arrival for key, arrival in arrived.items() if key not in there)
        gone = {arrival.entry.key: arrival.find_gone() for arrival in unseen}
        self._keep_open({key: arrived[key] for key in gone.keys() & self._files.keys()}, ())
        unknown = (entry for key, entry in gone.items() if entry and key not in self._files)
        return [entry for entry in unknown if self._selection.shows(entry.path)]

    def _keep_open(self, arrived: Mapping[FileKey, Arrival], undecided: Container[str]) -> None:
        """Keep those open that are followed now, and close the others but the undecided ones."""
        for key, arrival in arrived.items():
            if (
                arrival.entry.group not in undecided
                and (opened := self._arrivals.release(key)) >= 0
            ):
                self._reader.adopt(key, opened)

    def _watch(self, seen: Scan, undecided: Container[str], began: float) -> None:
        """Watch what a scan saw, and report what came and went unread."""
        entries = (file.entry for file in self._files.values() if file.unseen_since is None)
        took = time.monotonic() - began
        self._catalogue.notices += self._changes.watch(seen.folders, entries, took)
        decided = [entry for entry in seen.entries if entry.group not in undecided]
        self._catalogue.notices += self._arrivals.watch(seen.folders, self._selection)
        self._catalogue.notices += self._arrivals.find_missed(decided, seen.folders)

    def _note_refused(self, refused: Mapping[FileEntry, OSError], now: Now) -> set[str]:
        """Note files that cannot be read; return the groups that wait for one.

        One that may not be read is not waited for, unless it was read before.
        """
        for entry, error in refused.items():
            if (known := self._files.get(entry.key)) and known.is_doubtful:
                self._gathering.refuse(known, _describe(entry, error).text)
        failed = [one for one, error in refused.items() if not isinstance(error, PermissionError)]
        self._failed_at = {e.key: self._failed_at.get(e.key, now.steady) for e in failed}
        since = now.steady - 2 * self._limits.grace
        return {entry.group for entry in failed if self._failed_at[entry.key] > since}

    def _compare(self, file: FollowedFile, now: Now) -> None:
        """Find out whether a file was rewritten in place, if it can be read and is at rest."""
        if file.entry.key not in self._reader:
            return
        with suppress(OSError):  # which reading reports
            is_same = self._reader.has_its_content(file)
            sample = self._reader.sample(file)
            if sample is not None and not sample.entry.differs(file.entry):
                self._catalogue.note_comparison(file, sample, is_same, now)

    def _find_moved(
        self, seen: Scan, asked: Collection[FileEntry], found: Container[FileKey]
    ) -> set[str]:
        """Return the groups whose files moved during the scan: nothing can be decided on them."""
        unsure = {entry.group for entry in asked if entry.key not in found}
        concerned = {entry.group for entry in asked}
        concerned |= {file.entry.group for file in self._memory.find_unseen()}
        if not concerned:
            return set()
        again = scan(self._selection, self._memory.list_sibling_paths(), self._memory.find_sought)
        inodes = {entry.key.inode for entry in seen.entries}
        return unsure | {e.group for e in again.entries if e.key.inode not in inodes} & concerned

    def _note_unseen(self, file: FollowedFile, now: Now) -> None:
        """Let the catalogue decide on a file that the scan saw at no path."""
        key, reader = file.entry.key, self._reader
        if key not in reader:
            self._catalogue.note_unseen(file, Unseen(), None, now)
            return
        sample = reader.sample(file)
        file = file.note_unseen(sample, reader.is_linked(key), now)
        unseen = Unseen(
            is_open=True,
            has_all=sample is None or file.is_in(sample),
            is_overdue=file.is_held_too_long(now, self._limits),
            is_finished=file.is_read and file.is_at_rest(now, self._limits),
            is_stored=file.offset <= self.stored(file.file),
            is_writable=(file.is_linked or reader.has_writer(key)) and reader.has_space,
        )
        self._catalogue.note_unseen(file, unseen, sample, now)

    def _prepare_reading(self, now: Now) -> None:
        """Open files, and read on in all chains."""
        reader = self._reader
        self._catalogue.note_ended([f.file for f in self._files.values() if self._is_ended(f, now)])
        reader.trim()
        self._gathering.note_problems(reader.open_early(self.stored))
        for file, head in reader.read_heads(list(self._files.values())):
            self._memory.keep(file.note_content(head))
        self._gathering.begin()

    def _is_ended(self, file: FollowedFile, now: Now) -> bool:
        """Whether a file was rotated, and all of it is stored."""
        is_finished = file.is_at_rest(now, self._limits) and not file.unfinished
        return is_finished and file.end <= file.offset <= self.stored(file.file)

    def _report_new(self, troubles: Iterable[Notice]) -> None:
        """Report the troubles that the last scan did not have."""
        before = self._troubles
        self._troubles = sorted(set(troubles), key=lambda notice: (notice.path, notice.text))
        self._catalogue.notices += [notice for notice in self._troubles if notice not in before]


def _describe(entry: FileEntry, error: OSError) -> Notice:
    text = f"cannot be read: {error.strerror}; check its owner and mode"
    return Notice(NoticeKind.UNREADABLE, entry.path, text)
