"""The live files of a partition, as one batch writes to them: announce, close, append, sync.

`receiver/consume/batch.py` has the order of all steps. Each name is opened relative to the output
folder and never through a symbolic link.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from nats_logship.app.faults import fault
from nats_logship.app.text import format_count
from receiver.storage import rotation
from receiver.storage.folders import Folders
from receiver.storage.live_paths import LivePaths
from receiver.storage.open_files import LiveFile, OpenFiles
from receiver.storage.rotation import Calendar
from receiver.storage.rows import UNKNOWN, FileRow, SegmentRow, inode_of
from receiver.storage.store import Store
from receiver.storage.surplus import Surplus

_MOST_FILES = 10_000  # of a batch: each is a row of the store, and may have to be created
_ANY_AGE = 2**63  # after every moment
_OTHERS = "received files must not be written to by other programs"


@dataclass(slots=True)
class _Buffer:
    """Lines for a file, which will have `size` bytes with them.

    `row` is what the store had of the file before the batch. `moment` is when the broker stored
    the last line, in nanoseconds since the epoch.
    """

    row: FileRow | None
    size: int
    moment: int = 0
    pieces: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Output:
    """The output folder as one batch writes to it, by one thread, under the partition's lock.

    `rotate_size` is in bytes, 0 for never; `calendar` rotates by time. `is_full` is True when a
    file has reached its size, so that the next batch closes it, and when the batch has lines for
    many files. `closed` are the paths of closed segments. A file with a `surplus` is not closed.
    """

    folders: Folders
    store: Store
    paths: LivePaths
    rotate_size: int
    calendar: Calendar = Calendar(timedelta())  # noqa: RUF009 - without periods
    surplus: Surplus = field(default_factory=Surplus)
    closed: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    is_full: bool = False
    batch: int = field(init=False)
    _files: OpenFiles = field(init=False)
    _buffers: dict[str, _Buffer] = field(default_factory=dict)
    _until: int = 0  # the end of the batch's period of rotation

    def __post_init__(self) -> None:
        batch = self.store.read_batch()
        self.batch = batch.number + 1 if batch else 1
        self._files = OpenFiles(self.folders, self.surplus)

    def accepts(self, moment: int) -> bool:
        """Whether lines of a moment belong to the batch's period of rotation."""
        return not self._until or moment < self._until

    def buffer(self, path: str, piece: bytes, moment: int) -> int:
        """Keep lines for a live file until `flush`; return how many files have some."""
        if (lines := self._buffers.get(path)) is None:
            lines = self._buffers[path] = self._make_buffer(path)
            self._until = self._until or self.calendar.period(moment).end
        lines.pieces.append(piece)
        lines.moment = moment
        lines.size += len(piece)
        if 0 < self.rotate_size <= lines.size:
            self.is_full |= lines.size >= self.surplus.ends.get(path, 0)
        self.is_full |= len(self._files.live) + len(self._buffers) >= _MOST_FILES
        return len(self._buffers)

    def _make_buffer(self, path: str) -> _Buffer:
        if live := self._files.live.get(path):
            return _Buffer(live.row, live.size)
        row = self.store.find_file(path)
        return _Buffer(row, 0 if row is None or self._is_large(row) else row.length)

    def flush(self) -> None:
        """Announce new files and segments, close the files that are due, then append all lines.

        A file is due when its size is reached, or when its last line is of an earlier period.
        Raises OSError.
        """
        buffers, self._buffers = self._buffers, {}
        if self.surplus.ends:
            self._compare_surplus(buffers)
        begins = {path: self.calendar.period(one.moment).begin for path, one in buffers.items()}
        self._prepare([(path, one.row, begins[path]) for path, one in buffers.items()])
        for path, lines in buffers.items():
            live = self._files.live[path]
            live.moment = max(live.moment, lines.moment)
            try:
                self._files.append(path, lines.pieces)
            except FileExistsError:
                self._forget(path)
                raise

    def _compare_surplus(self, buffers: Mapping[str, _Buffer]) -> None:
        """Cut the files to which other lines come than those that a killed task has left there."""
        for path in self.surplus.ends.keys() & buffers.keys():
            lines = buffers[path]
            begin = lines.size - sum(map(len, lines.pieces))
            if lines.row:
                self.surplus.compare(self.folders, lines.row, begin, lines.pieces)

    def close_files(self, paths: Iterable[str]) -> None:
        """Close live files that have lines, but none with a surplus; raises OSError."""
        found = []
        for path in paths:
            if path in self.surplus.ends:
                continue
            with suppress(OSError):  # the next lines for the file report the error
                if self.folders.find(path):
                    found.append((path, self.store.find_file(path), _ANY_AGE))
        if found:
            self._prepare(found)

    def close_days(self, today: str) -> None:
        """Close the files of days before `today` under their own names, as `close_files` does."""
        files = self.store.list_files_of_days_before(today)
        rows = [row for row in files if row.path not in self.surplus.ends]
        segments = [self._make_segment(row, row.path, row.number, row.length) for row in rows]
        if segments:
            self._announce(segments, [])
        self.closed += [segment.path for segment in segments]

    # before the first lines of a file

    def _prepare(self, files: Iterable[tuple[str, FileRow | None, int]]) -> None:
        """Announce the files that are new, or due to be closed; then close the latter.

        A file comes with its row, and the moment from which its last line must be.
        """
        closing, rows = self._compare(files)
        self._announce(closing, rows)
        for segment in closing:
            self._close(segment)

    def _compare(
        self, files: Iterable[tuple[str, FileRow | None, int]]
    ) -> tuple[list[SegmentRow], list[FileRow]]:
        """Compare files with the disk; return the segments to close, and the rows of new files.

        Files that the batch has touched are passed over: lines of the batch may be in them.
        """
        closing: list[SegmentRow] = []
        rows: list[FileRow] = []
        for path, known, begin in files:
            if path in self._files.live:
                continue
            row, size = self._inspect(path, known)
            is_due = row.unfinished == UNKNOWN or row.last_line < begin or self._is_large(row)
            is_due &= path not in self.surplus.ends
            if size and (is_due or row.length != size):
                number = self._find_free_number(row)
                name = rotation.name_segment(path, number)
                closing.append(self._make_segment(row, name, number, size))
                row, size = row._replace(inode=0, number=number + 1), 0
            if known is None or not row.inode or (row.inode, size) != (known.inode, known.length):
                row = _make_empty_row(row, self.batch)
                rows.append(row)
            self._files.live[path] = LiveFile(
                row=row, size=size, moment=row.last_line, inode=row.inode
            )
        return closing, rows

    def _inspect(self, path: str, row: FileRow | None) -> tuple[FileRow, int]:
        """Return the row of a file and its size on disk; note what other programs did to it."""
        try:
            found = self.folders.find(path)
        except (IsADirectoryError, NotADirectoryError):
            if row and not row.length:
                self._forget(path)
            raise
        if row is None:
            if found:
                raise self._files.describe_foreign(path)
            return self.paths.new_row(path, self.batch), 0
        if found and inode_of(found) == row.inode and found.st_size > row.length:
            cut = partial(self.folders.cut, path)
            self._files.cut_foreign(path, row.length, found.st_size, cut)
            return row, row.length
        if found is None or (inode_of(found), found.st_size) != (row.inode, row.length):
            if row.host and row.length:
                self.notices.append(_describe_change(row, found))
            # -1 differs from every size: a file of another program is closed as a segment
            row = row._replace(length=-1 if row.length else 0, unfinished=None)
        return row._replace(inode=inode_of(found) if found else 0), found.st_size if found else 0

    def _is_large(self, row: FileRow) -> bool:
        is_large = bool(row.host) and 0 < self.rotate_size <= row.length
        return is_large and row.path not in self.surplus.ends

    def _find_free_number(self, row: FileRow) -> int:
        """Return the number of the next segment; no file is overwritten, also not a foreign one."""
        number, suffixes = row.number, ("", *rotation.SUFFIXES.values())
        while any(
            self.folders.find(rotation.name_segment(row.path, number) + suffix)
            for suffix in suffixes
        ):
            number += 1
        return number

    def _make_segment(self, row: FileRow, path: str, number: int, size: int) -> SegmentRow:
        return SegmentRow(
            path=path,
            live=row.path,
            number=number,
            day=row.day,
            size=size,
            last_line=row.last_line,
            compressed="",
            batch=self.batch,
            length=size,
        )

    def _announce(self, closing: list[SegmentRow], rows: list[FileRow]) -> None:
        """Write the rows of files to create and of segments to close, before either is done."""
        if closing or rows:
            batch = self.store.read_batch()
            with self.store.transaction():
                self.store.put_files(rows)
                self.store.put_segments(closing)
                if batch and closing:
                    # make the stored batch empty: a start never undoes it, as both ids are the same
                    self.store.put_batch(
                        batch._replace(first=batch.until, previous_id=batch.commit_id)
                    )
            self.paths.mark_stored()
        fault("announced")

    def _close(self, segment: SegmentRow) -> None:
        """Rename a live file to a segment, and create the next live file."""
        fault("closed")
        self.folders.rename(segment.live, segment.path)
        fault("rotated")
        self.closed.append(segment.path)
        try:
            self._files.create(segment.live)
        except FileExistsError:
            self._forget(segment.live)
            raise

    def _forget(self, path: str) -> None:
        """Forget a live file without lines, so that the next attempt chooses another path."""
        with self.store.transaction():
            self.store.forget_files([path])

    # the end of the batch

    def sync(self) -> None:
        """Bring all appended lines and all changed names to disk; raises OSError."""
        self._files.sync()

    def collect_notices(self) -> list[str]:
        """Return what other programs did to files, and what was cut off."""
        return [
            *self.notices,
            *self.surplus.take_notices(),
            *(
                f"{path}: {size} bytes that another program appended were cut off; {_OTHERS}"
                for path, size in self._files.cut_off.items()
            ),
        ]

    def rows(self, unfinished: Mapping[str, str | None]) -> Iterator[FileRow]:
        """Yield the rows of all files that the batch has touched, as they are now.

        `unfinished` has, for each file that got lines, the open line at its end, None for none.
        """
        for path, live in self._files.live.items():
            yield live.row._replace(
                length=live.size,
                length_before=live.row.length,
                inode=live.inode,
                last_line=live.moment,
                last_line_before=live.row.last_line,
                unfinished=unfinished.get(path, live.row.unfinished),
                unfinished_before=live.row.unfinished,
                batch=self.batch,
            )

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()


def _describe_change(row: FileRow, found: os.stat_result | None) -> str:
    before = format_count(row.length, "byte")
    now = f"it has {format_count(found.st_size, 'byte')} now" if found else "it is gone"
    return (
        f"{row.path} had {before} of lines, and was changed, moved or removed by another program: "
        f"{now}. A new file begins"
    )


def _make_empty_row(row: FileRow, batch: int) -> FileRow:
    """Return the row of a file that the batch creates, or that is empty."""
    unfinished = row.unfinished if row.unfinished != UNKNOWN else None
    return row._replace(
        length=0,
        length_before=0,
        last_line_before=row.last_line,
        unfinished=unfinished,
        unfinished_before=unfinished,
        batch=batch,
    )
