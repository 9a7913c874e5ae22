"""Gathers lines: reads the files of a catalogue, chain by chain, the oldest file of each first.

A gathering only reads; it leaves a doubtful file to the next scan.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from shipper.clock import Clock
from shipper.sources.block import Block
from shipper.sources.files.catalogue import Catalogue
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import FileKey
from shipper.sources.files.progress import Reading
from shipper.sources.files.reader import FileReader
from shipper.sources.files.sampling import PASSING
from shipper.sources.notices import NoticeKind

_SECOND = 1_000_000_000
_LEAST_SHARE = 256 * 1024  # bytes of each of many files that are read at a time
_MOST_FILES = 32  # that share a budget
_TRIED_AGAIN = "is tried again; once it was rotated, newer files wait for it for twice --grace"
_MOST_BLOCKS = 200  # about as many as the headers of a round can name


class Gathering:
    """What may be read next of the files of a catalogue.

    `is_scan_due`: a read found something that a scan decides. `is_only`: the host has no lines but
    those of these files.
    """

    def __init__(
        self, catalogue: Catalogue, reader: FileReader, clock: Clock, *, is_only: bool
    ) -> None:
        self.is_scan_due = False
        self._catalogue = catalogue
        self._files = catalogue.files
        self._reader = reader
        self._clock = clock
        self._is_only = is_only
        self._queue: dict[str, None] = {}  # chains that may have something to read
        self._last: FileKey | None = None  # the file that was read last
        self._is_searching = False  # the last gathering left a search for the end of a record
        self._held: set[FileKey] = set()  # files whose last record was waited for when read last
        self._holes: Counter[FileKey] = Counter()  # bytes since the last scan

    @property
    def record_due_in(self) -> float:
        """The seconds until a record is waited for no longer; infinite without such a record.

        0 while the end of one is searched.
        """
        if self._is_searching:
            return 0.0
        timeout = self._reader.limits.records.timeout
        held = (file for key in self._held if (file := self._files.get(key)) and file.holds_lines)
        left = (file.grown_at + timeout - self._clock.steady() for file in held)
        return min((one for one in left if one > 0), default=math.inf) / _SECOND

    @property
    def interrupted(self) -> FollowedFile | None:
        """The file that was read last inside a record, if more of it can be read, or soon can.

        Whether a doubtful file has more, or its copy, is found out by the next scan.
        """
        last = self._files.get(self._last) if self._last else None
        if last is None or last.is_passed_over(self._clock(), self._reader.limits):
            return None
        goes_on = last.progress.in_line if last.is_doubtful else last.is_inside_record
        return last if goes_on else None

    def note_write(self, file: FollowedFile) -> None:
        """Read a file soon, since it was written to."""
        self._files[file.entry.key] = file.mark(self._clock())
        self._queue[self._catalogue.chain_of[file.entry.key]] = None

    def begin(self) -> None:
        """Read from all chains, as a scan left them; report the holes that were left out."""
        for key, length in self._holes.items():
            if key in self._files:
                text = f"has holes of {length} bytes, which are left out"
                self._report(self._files[key], text)
        self._holes.clear()
        self._queue.update(dict.fromkeys(self._catalogue.chains))
        self.resume()

    def resume(self) -> None:
        """Go on in the record that was read last, if the offset of a file is inside one."""
        inside = [
            (file.progress.seen, key) for key, file in self._files.items() if file.is_inside_record
        ]
        self._last = max(inside)[1] if inside else None

    def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines, the oldest file of each chain first.

        May return none while it searches the end of an over-long record: that may take long, and
        files and other sources change meanwhile. The next gathering goes on.
        """
        blocks: list[Block] = []
        self._is_searching = False
        while (budget > 0 or not (blocks or self._is_searching)) and len(blocks) < _MOST_BLOCKS:
            if not (files := self._open(self._choose())):
                break
            share = max(min(_LEAST_SHARE, self._reader.limits.block_size), budget // len(files))
            for file in files:
                reading = self._read(file, share)
                budget -= len(reading.run) + reading.unfinished
                blocks += self._accept(file, reading)
                after = self._files[file.entry.key]
                self._is_searching |= after.is_partly_searched
                if budget <= 0 or after.progress.in_line:
                    break
        return blocks

    def _choose(self) -> Sequence[FollowedFile]:
        """Return the files to read next; chains that have nothing to read leave the queue.

        One compressed file at most, since each takes memory to decompress.
        """
        if last := self.interrupted:  # nothing comes between, but for as long as records are held
            is_due = last.is_due(self._clock(), self._reader.limits)
            return [last] if is_due and not last.is_doubtful else []
        ready: list[FollowedFile] = []
        for chain in list(self._queue):
            first = self._first(self._catalogue.chains.get(chain, ()))
            if first is None:
                del self._queue[chain]
            elif first.is_due(self._clock(), self._reader.limits):
                is_second = any(one.entry.compression for one in ready)
                if not (first.entry.compression and is_second):
                    ready.append(first)
            if len(ready) >= min(_MOST_FILES, self._reader.limits.open_files):
                break
        return ready

    def _first(self, chain: Iterable[FileKey]) -> FollowedFile | None:
        """Return the file that those behind it wait for.

        Behind a doubtful file nothing is read: it may have to be read from its beginning.
        """
        now, limits = self._clock(), self._reader.limits
        for key in chain:
            if (file := self._files.get(key)) is None:
                continue
            if file.is_doubtful and file.is_passed_over(now, limits):
                continue
            if file.is_doubtful:
                return None
            is_held = file.holds_lines and not file.is_rotated
            if file.is_due(now, limits) or is_held or file.is_waited_for(now, limits):
                return file
        return None

    def _open(self, files: Sequence[FollowedFile]) -> Collection[FollowedFile]:
        """Open the files to read next; a chain whose file cannot be opened waits for a scan."""
        self.note_problems(self._reader.open(files) if files else {})
        for file in files:
            if file.entry.key not in self._reader:
                self._queue.pop(self._catalogue.chain_of[file.entry.key], None)
                self.is_scan_due = True
        return [file for file in files if file.entry.key in self._reader]

    def note_problems(self, problems: Mapping[FileKey, OSError]) -> None:
        """Note why files cannot be opened."""
        for key, error in problems.items():
            file, text = self._files[key], f"cannot be opened: {error.strerror}"
            if file.readable_since is None or error.errno in PASSING:
                self._files[key] = file._replace(problem=text)
            else:
                self.refuse(file, text)

    def refuse(self, file: FollowedFile, problem: str) -> None:
        """Note why a file cannot be read now, and report it the first time."""
        self._keep(file, file.refuse(problem, self._clock()))

    def _keep(self, before: FollowedFile, after: FollowedFile) -> None:
        self._files[after.entry.key] = after
        if before.refused_at is None and after.refused_at is not None:
            path, text = after.entry.path, f"{after.problem}; {_TRIED_AGAIN}"
            self._catalogue.report(NoticeKind.UNREADABLE, path, text)

    def _read(self, file: FollowedFile, share: int) -> Reading:
        # among other files' lines an over-long record is shipped once it has its end
        is_alone = self._is_only and len(self._files) == 1
        has_ended = file.has_ended(self._clock(), self._reader.limits)
        return self._reader.read(file, share, may_split=is_alone or has_ended)

    def _accept(self, file: FollowedFile, reading: Reading) -> list[Block]:
        key = file.entry.key
        after, blocks, lost = file.accept(reading, self._clock(), self._reader.limits)
        self._keep(file, after)
        (self._held.add if after.holds_lines else self._held.discard)(key)
        if blocks:
            self._holes.update({key: reading.hole} if reading.hole else {})
        if after.padding and not file.padding:
            what = f"has {after.padding} NUL bytes at its end"
            self._report(after, f"{what}, which are shipped once they are written over")
        if lost is not None:
            path = after.entry.path
            self._catalogue.report(NoticeKind.DAMAGED, path, after.problem, lost)
        self.is_scan_due |= after.is_doubtful or lost is not None
        chain, self._last = self._catalogue.chain_of[key], key
        if after.entry.compression is None:  # a compressed file is read to its end
            self._queue.pop(chain, None)
        if not after.is_read or len(self._catalogue.chains[chain]) > 1:
            self._queue[chain] = None
        return blocks

    def _report(self, file: FollowedFile, text: str) -> None:
        self._catalogue.report(NoticeKind.CONTENT, file.entry.path, text)
