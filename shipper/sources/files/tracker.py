"""Scans the folders and gathers lines: the shell around `decide`, run by the follower's thread.

    scan ──▶ samples ──▶ decide ──▶ catalogue (states, chains) ──▶ reader ──▶ blocks

A scan decides what each file is. A gathering only reads; it leaves a doubtful file to the next
scan.
"""

import math
import sys
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.catalogue import Catalogue
from shipper.sources.files.changes import ChangeDetection
from shipper.sources.files.decide import Unseen
from shipper.sources.files.entry import FileEntry, FileKey
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import Sample
from shipper.sources.files.paths import Selection
from shipper.sources.files.progress import Reading
from shipper.sources.files.reader import Reader
from shipper.sources.files.records import RecordRules
from shipper.sources.files.sampling import sample
from shipper.sources.files.scan import Scan, scan
from shipper.sources.notices import Notice, NoticeKind
from shipper.sources.source import SourceState

_SECOND = 1_000_000_000
_LEAST_SHARE = 256 * 1024  # bytes of each of many files that are read at a time
_MOST_FILES = 32  # that share a budget
_MOST_BLOCKS = 200  # about as many as the headers of a round can name


class Tracker:
    """Knows the files of one follower; serves one caller at a time, and blocks.

    `is_scan_due`: a file came, went, or was renamed or truncated since the last scan.
    `has_decided`: the last scan decided on all files that it saw. `troubles` kept files from being
    read at the last scan. `stored` returns up to which byte a file is stored, by id. `is_only`: the
    host has no lines but those of these files.
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
        new_id: Callable[[], str],
        clock: Callable[[], int],
        changes: ChangeDetection,
    ) -> None:
        """Know the files of the cursors; `clock` gives nanoseconds since the epoch."""
        self.is_scan_due = True
        self.has_decided = False
        self.troubles: list[Notice] = []
        self.stored: Callable[[str], int] = lambda _: sys.maxsize
        self.is_only = True
        self._new_id = new_id
        self._clock = clock
        self._changes = changes
        self._begin(selection, known)

    def _begin(self, selection: Selection, known: Iterable[Cursor]) -> None:
        """Know nothing but these cursors."""
        self._selection = selection
        self._has_scanned = False
        self._catalogue = Catalogue(selection, known, self._new_id)
        self._memory = self._catalogue.memory
        self.files: Mapping[FileKey, FollowedFile] = self._memory.files
        self._reader = Reader(self.files)
        self._queue: dict[str, None] = {}  # chains that may have something to read
        self._last: FileKey | None = None  # the file that was read last
        self._held: set[FileKey] = set()  # files whose last record was waited for when read last
        self._holes: dict[FileKey, tuple[int, int]] = {}  # since the last scan: bytes, last end

    def set_limits(self, grace: float, hold: float, records: RecordRules) -> None:
        """Wait `grace` seconds for the end of a line; hold a deleted file for `hold` seconds."""
        self._grace, self._hold = int(grace * _SECOND), int(hold * _SECOND)
        self._rules, self._timeout = records, records.timeout
        self._reader.rules = records

    def resize(self, block_size: int, max_line: int, open_files: int) -> None:
        """Read blocks and lines of these sizes, in bytes, and keep so many files open."""
        self._sizes = block_size, max_line, open_files
        self._least_share = min(_LEAST_SHARE, block_size)
        self._most_files = min(_MOST_FILES, open_files)
        self._reader.resize(*self._sizes)

    @property
    def ended(self) -> set[str]:
        """The ids of files of which nothing more is expected, or whose loss was reported."""
        return set(self._catalogue.ended)

    @property
    def deleted(self) -> list[str]:
        """The ids of files that were deleted and are not open any more, oldest first."""
        return list(self._memory.deleted)

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return len(self._reader)

    def list_states(self) -> list[SourceState]:
        """Return the state of each followed file."""
        now, grace = self._clock(), self._grace
        return [file.describe(now, grace) for file in list(self.files.values())]

    @property
    def record_due_in(self) -> float:
        """The seconds until a record is waited for no longer; infinite without such a record."""
        held = (file for key in self._held if (file := self.files.get(key)) and file.holds_lines)
        left = (file.grown_at + self._timeout - self._clock() for file in held)
        return min((one for one in left if one > 0), default=math.inf) / _SECOND

    @property
    def interrupted(self) -> FollowedFile | None:
        """The file that was read last, if it goes on inside a line and can be read."""
        last = self.files.get(self._last) if self._last else None
        if last is None or last.readable_since is None or last.is_doubtful:
            return None
        return last if last.progress.in_line else None

    def retarget(self, selection: Selection) -> None:
        """Follow another selection from the next scan on."""
        self._catalogue.retarget(selection)
        self._selection = selection
        self._start_over()

    def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read on from these cursors; if one is of an unknown file, find all files again."""
        if not (self._has_scanned and self._catalogue.rewind(cursors, self._clock())):
            self._reader.close()
            # files that came since the first scan came after the start
            from_end = self._selection.from_end and not self._has_scanned
            self._begin(replace(self._selection, from_end=from_end), cursors.values())
            self._reader.resize(*self._sizes)
            self._reader.rules = self._rules
        self._start_over()

    def close(self) -> None:
        """Close all files."""
        self._reader.close()

    def _start_over(self) -> None:
        self.has_decided = False
        self._resume()
        self._reader.trim()
        self.is_scan_due = True

    def _resume(self) -> None:
        """Go on in the record that was read last, if the offset of a file is inside one."""
        resumed = [file for file in self.files.values() if file.progress.is_resumed]
        for file in resumed:
            self._find_record(file)
        inside = [
            (file.progress.seen, key)
            for key, file in self.files.items()
            if file.progress.in_line and file.readable_since is not None
        ]
        self._last = max(inside)[1] if inside else None

    def _find_record(self, file: FollowedFile) -> FollowedFile:
        """Return a file that is read on; find out whether its offset is inside a record."""
        if file.progress.is_resumed and file.entry.key in self._reader and not file.is_doubtful:
            with suppress(OSError):  # which reading reports
                file = file.resume(in_record=self._reader.is_inside_record(file))
                self._memory.keep(file)
        return file

    # scanning

    def scan(self) -> list[Notice]:
        """Scan the folders, and decide what each file is; return what changed."""
        self._take_changes()
        self.is_scan_due, self._has_scanned = False, True
        catalogue = self._catalogue
        try:
            paths = self._memory.list_sibling_paths()
            self._scan_once(self._clock(), time.monotonic())
            if (
                self._memory.list_sibling_paths().keys()
                - paths.keys()
                - self._memory.live_paths.keys()
            ):
                # a file was found in another folder, where its siblings may be as well
                self._scan_once(self._clock(), time.monotonic())
        except OSError as error:  # nothing was seen, so nothing is known to be gone
            self.is_scan_due = True
            text = f"cannot be listed now: {error.strerror}"
            self._report_new([Notice(NoticeKind.UNREADABLE, str(error.filename), text)])
        notices, catalogue.notices = catalogue.notices, []
        return notices

    def _scan_once(self, now: int, began: float) -> None:
        catalogue, reader = self._catalogue, self._reader
        seen = scan(self._selection, self._memory.list_sibling_paths(), self._memory.find_sought)
        for file in catalogue.note_scan(seen, now, reader):
            self._compare(file, now)
        asked = self._memory.choose_samples(reader)
        from_end = self._selection.from_end and self._memory.scanned_at is None
        found = sample(asked, from_end=from_end)
        undecided = self._find_moved(seen, asked, found)
        self.has_decided = not undecided
        self.is_scan_due |= bool(undecided)
        refused = [one for one in found.values() if isinstance(one, Notice)]
        self._report_new([*seen.troubles, *refused])
        self._report_holes()
        for file in self._memory.find_unseen(undecided):
            if seen.refuses(file.entry):
                catalogue.leave_out(file)
            else:
                self._note_unseen(file, now)
        samples = [one for one in found.values() if isinstance(one, Sample)]
        for one in samples:
            reader.forget_search(one.entry.key)
        catalogue.settle(samples, undecided, now, self.stored)
        self._prepare_reading(now)
        entries = (file.entry for file in self.files.values() if file.unseen_since is None)
        took = time.monotonic() - began
        catalogue.notices += self._changes.watch(seen.folders, entries, took)

    def _compare(self, file: FollowedFile, now: int) -> None:
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

    def _note_unseen(self, file: FollowedFile, now: int) -> None:
        """Let the catalogue decide on a file that the scan saw at no path."""
        key, reader = file.entry.key, self._reader
        if key not in reader:
            self._catalogue.note_unseen(file, Unseen(), None, now)
            return
        sample = reader.sample(file)
        file = file.note_unseen(sample, reader.is_linked(key), now)
        is_read = file.readable_since is None and not file.unfinished
        unseen = Unseen(
            is_open=True,
            has_all=sample is None or file.is_in(sample),
            is_empty=sample is not None and not sample.size,
            is_overdue=now - (file.unseen_since or now) > self._hold,
            is_finished=is_read and file.is_at_rest(now, self._grace),
            is_stored=file.offset <= self.stored(file.file),
            is_writable=file.is_linked and reader.has_space,
        )
        self._catalogue.note_unseen(file, unseen, sample, now)

    def _prepare_reading(self, now: int) -> None:
        """Open files, and queue all chains."""
        catalogue, reader = self._catalogue, self._reader
        catalogue.note_ended([f.file for f in self.files.values() if self._is_ended(f, now)])
        reader.trim()
        self._note_troubles(reader.open_early(self.stored))
        for file, head in reader.read_heads(list(self.files.values())):
            self._memory.keep(file.note_content(head))
        self._queue.update(dict.fromkeys(catalogue.chains))
        self._resume()

    def _is_ended(self, file: FollowedFile, now: int) -> bool:
        """Whether a file was rotated, and all of it is stored."""
        is_read = file.is_at_rest(now, self._grace) and not file.unfinished
        return is_read and file.end <= file.offset <= self.stored(file.file)

    def _note_troubles(self, troubles: Mapping[FileKey, str]) -> None:
        for key, text in troubles.items():
            self._memory.keep(self.files[key]._replace(problem=text))

    def _report_new(self, troubles: Iterable[Notice]) -> None:
        """Report the troubles that the last scan did not have."""
        before = self.troubles
        self.troubles = sorted(set(troubles), key=lambda notice: (notice.path, notice.text))
        self._catalogue.notices += [notice for notice in self.troubles if notice not in before]

    def _report_holes(self) -> None:
        for key, (length, end) in self._holes.items():
            if key in self.files:
                where = f"the last one ends at byte {end}"
                text = f"has holes of {length} bytes, which are left out; {where}"
                self._report_content(self.files[key], text)
        self._holes = {}

    def _report_content(self, file: FollowedFile, text: str) -> None:
        self._catalogue.report(NoticeKind.CONTENT, file.entry.path, text)

    # gathering

    def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines, the oldest file of each chain first."""
        self._take_changes()
        blocks: list[Block] = []
        while (budget > 0 or not blocks) and len(blocks) < _MOST_BLOCKS:
            if not (files := self._open_next()):
                break
            share = max(self._least_share, budget // len(files))
            for file in map(self._find_record, files):
                reading = self._read(file, share)
                budget -= len(reading.run) + reading.unfinished
                blocks += self._accept(file, reading)
                if budget <= 0 or self.files[file.entry.key].progress.in_line:
                    break
        return blocks

    def _read(self, file: FollowedFile, share: int) -> Reading:
        # among other files' lines an over-long record is shipped once it has its end
        now, is_alone = self._clock(), self.is_only and len(self.files) == 1
        is_ended = file.is_at_rest(now, self._grace) or file.is_quiet(now, self._timeout)
        return self._reader.read(file, share, may_split=is_alone or is_ended)

    def _take_changes(self) -> None:
        """Note what was reported since the last time."""
        self._memory.note_time(self._clock())
        written, is_due = self._changes.read_events()
        self.is_scan_due |= is_due
        for key in written:
            if (file := self.files.get(key)) is None:
                continue
            if file.entry.compression is None:
                self._memory.keep(file.mark(self._clock()))
                self._queue[self._catalogue.chain_of[key]] = None
            else:
                self.is_scan_due = True  # a scan decides whether to decompress it again

    def _open_next(self) -> list[FollowedFile]:
        """Open the files to read next; a chain whose file cannot be opened waits for a scan."""
        if not (files := self._next()):
            return files
        self._note_troubles(self._reader.open(files))
        for file in files:
            if file.entry.key not in self._reader:
                self._queue.pop(self._catalogue.chain_of[file.entry.key], None)
                self.is_scan_due = True
        return [file for file in files if file.entry.key in self._reader]

    def _next(self) -> list[FollowedFile]:
        """Return the files to read next; chains that have nothing to read leave the queue.

        One compressed file at most, since each takes memory to decompress.
        """
        if last := self.interrupted:
            return [last]
        ready: list[FollowedFile] = []
        for chain in list(self._queue):
            first = self._first(self._catalogue.chains.get(chain, ()))
            if first is None:
                del self._queue[chain]
            elif first.readable_since is not None or self._is_due(first):
                is_second = any(one.entry.compression for one in ready)
                if not (first.entry.compression and is_second):
                    ready.append(first)
            if len(ready) >= self._most_files:
                break
        return ready

    def _first(self, chain: Iterable[FileKey]) -> FollowedFile | None:
        """Return the file that those behind it wait for.

        Behind a doubtful file nothing is read: it may have to be read from its beginning.
        """
        now, files = self._clock(), self.files
        for key in chain:
            if (file := files.get(key)) is None:
                continue
            if file.is_doubtful:
                return None
            is_held = file.holds_lines and not file.is_rotated
            is_waited_for = is_held or file.is_waited_for(now, self._grace)
            if file.readable_since is not None or self._is_due(file) or is_waited_for:
                return file
        return None

    def _is_due(self, file: FollowedFile) -> bool:
        return file.is_due(self._clock(), self._grace, self._timeout)

    def _accept(self, file: FollowedFile, reading: Reading) -> list[Block]:
        accepted = file.accept(reading, self._clock(), self._grace, self._timeout)
        key, after = file.entry.key, accepted.file
        self._memory.keep(after)
        (self._held.add if after.holds_lines else self._held.discard)(key)
        if reading.hole and accepted.blocks:
            self._holes[key] = self._holes.get(key, (0, 0))[0] + reading.hole, after.offset
        if after.padding and not file.padding:
            what = f"has {after.padding} NUL bytes at its end"
            self._report_content(after, f"{what}, which are shipped once they are written over")
        if accepted.lost is not None:
            self._catalogue.report(
                NoticeKind.DAMAGED, after.entry.path, after.problem, accepted.lost
            )
            self.is_scan_due = True
        self.is_scan_due |= after.is_doubtful
        chain, self._last = self._catalogue.chain_of[key], key
        if after.entry.compression is None:  # a compressed file is read to its end
            self._queue.pop(chain, None)
        is_read = after.readable_since is None and not after.unfinished
        if not is_read or len(self._catalogue.chains[chain]) > 1:
            self._queue[chain] = None
        return accepted.blocks
