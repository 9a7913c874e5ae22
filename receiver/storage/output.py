"""The live files of a partition as one batch writes to them: announced, closed, appended, brought to disk.

Every name is opened relative to the output folder and never through a symbolic link. Files are closed only before the
batch appends to them: all that they hold is committed then, so that a rotation is never undone, only finished. What is
new or to be closed is in the store before it is done; what is appended to a file that is known is not, as its committed
length says where to cut.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from nats_logship.app.faults import fault
from nats_logship.app.text import format_count
from receiver.storage import disk, rotation
from receiver.storage.folders import Folders, set_owner_and_mode
from receiver.storage.names import LivePaths
from receiver.storage.rotation import Calendar
from receiver.storage.rows import UNKNOWN, FileRow, SegmentRow
from receiver.storage.store import Store

_MOST_OPEN = 256  # descriptors that one task keeps; then all are closed
_MANY = 64  # files; one sync of the whole file system is cheaper than that many, though it takes others' bytes along
_MOST_FILES = 10_000  # of a batch: each is a row of the store, and may have to be made
_LARGE = 1024 * 1024  # bytes
_MOST_PIECES = 1024  # IOV_MAX of Linux
_FLAGS = os.O_WRONLY  # each descriptor is at the end of our lines, whatever others have appended


@dataclass(slots=True)
class _Lines:
    """Lines for a file, which has `size` bytes with them; the last came at `moment`, in nanoseconds since the epoch.

    `row` is what the store had of the file before the batch.
    """

    row: FileRow | None
    size: int
    moment: int = 0
    pieces: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Live:
    """A live file as the batch has it by now; `row` is what is committed of it."""

    row: FileRow
    size: int
    moment: int
    inode: int


@dataclass(slots=True)
class Output:
    """The output folder as one batch writes to it; used by one thread, under the partition's lock.

    `rotate_size` is in bytes, 0 is never; `calendar` tells when time rotates. It `is_full` when a
    file has reached its size, so that the next batch closes it, and when it has lines for many
    files. What somebody else did to files is in `notices`, but for what they appended, which is cut
    off.
    """

    folders: Folders
    store: Store
    names: LivePaths
    rotate_size: int
    calendar: Calendar = Calendar(timedelta())  # noqa: RUF009 - without periods
    closed: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    is_full: bool = False
    batch: int = field(init=False)
    _open: dict[str, int] = field(default_factory=dict)
    _has_left: bool = False  # files that were closed without a sync
    _lives: dict[str, _Live] = field(default_factory=dict)
    _held: dict[str, _Lines] = field(default_factory=dict)
    _until: int = 0  # of the period of rotation that the batch is in
    _cut_off: Counter[str] = field(default_factory=Counter)  # bytes of others, by file

    def __post_init__(self) -> None:
        batch = self.store.read_batch()
        self.batch = batch.number + 1 if batch else 1

    def accepts(self, moment: int) -> bool:
        """Say whether lines of a moment belong into this batch: else files may have to be closed before them."""
        return not self._until or moment < self._until

    def buffer(self, path: str, piece: bytes, moment: int) -> int:
        """Keep lines for a live file until `flush`; return for how many files there are some."""
        if (lines := self._held.get(path)) is None:
            lines = self._held[path] = self._first_lines(path)
            self._until = self._until or self.calendar.period(moment).end
        lines.pieces.append(piece)
        lines.moment = moment
        lines.size += len(piece)
        self.is_full |= 0 < self.rotate_size <= lines.size
        self.is_full |= len(self._lives) + len(self._held) >= _MOST_FILES
        return len(self._held)

    def _first_lines(self, path: str) -> _Lines:
        if live := self._lives.get(path):
            return _Lines(live.row, live.size)
        row = self.store.find_file(path)
        return _Lines(row, 0 if row is None or self._is_large(row) else row.length)

    def flush(self) -> None:
        """Append what is held to live files, closing those whose size or time is reached before; raises OSError."""
        held, self._held = self._held, {}
        begins = {path: self.calendar.period(one.moment).begin for path, one in held.items()}
        self._take_up([(path, one.row, begins[path]) for path, one in held.items()])
        for path, lines in held.items():
            live = self._lives[path]
            live.moment = max(live.moment, lines.moment)
            self._append(path, lines.pieces)

    def close_files(self, paths: Iterable[str]) -> None:
        """Close live files that have lines; what is no file by now is left as it is. Raises OSError."""
        there = []
        for path in paths:
            with suppress(OSError):  # that's fine: it is told when lines come for it
                if self.folders.find(path):
                    there.append((path, self.store.find_file(path), 2**63))
        if there:
            self._take_up(there)

    def close_days(self, today: str) -> None:
        """Have files of days before `today` be closed as they are; raises OSError."""
        rows = self.store.list_files_of_days_before(today)
        over = [self._segment(row, row.path, row.number, row.length) for row in rows]
        if over:
            self._announce(over, [])
        self.closed += [segment.path for segment in over]

    # what is there

    def _take_up(self, files: Iterable[tuple[str, FileRow | None, int]]) -> None:
        """Hold files that the batch has not touched against the disk; close those whose last line is older than a moment."""
        closing: list[SegmentRow] = []
        rows: list[FileRow] = []
        for path, known, since in files:
            if path in self._lives:
                continue
            row, size = self._looked_at(path, known)
            is_over = row.unfinished == UNKNOWN or row.last_line < since or self._is_large(row)
            if size and (is_over or row.length != size):
                number = self._free_number(row)
                closing.append(self._segment(row, rotation.closed_name(path, number), number, size))
                row, size = row._replace(inode=0, number=number + 1), 0
            if known is None or not row.inode or (row.inode, size) != (known.inode, known.length):
                row = _begun_anew(row, self.batch)
                rows.append(row)
            self._lives[path] = _Live(row, size, row.last_line, row.inode)
        self._announce(closing, rows)
        for segment in closing:
            self._close(segment)

    def _looked_at(self, path: str, row: FileRow | None) -> tuple[FileRow, int]:
        """Return the row of a file and how long it is on disk; what others did to it is told."""
        try:
            found = self.folders.find(path)
        except (IsADirectoryError, NotADirectoryError):
            if row and not row.length:
                self._forget(path)
            raise
        if row is None:
            if found:
                raise self._not_ours(path)
            return self.names.new_row(path, self.batch), 0
        if found and found.st_ino == row.inode and found.st_size > row.length:
            self._cut_off[path] += found.st_size - row.length
            self.folders.cut(path, row.length)
            return row, row.length
        if found is None or (found.st_ino, found.st_size) != (row.inode, row.length):
            if row.host and row.length:
                now = (
                    f"{format_count(found.st_size, 'byte', 'are')} there" if found else "it is gone"
                )
                self.notices.append(
                    f"{path}, of which {format_count(row.length, 'byte', 'were')} written, was changed, moved or removed by somebody else: {now}; "
                    "a new one begins"
                )
            row = row._replace(length=-1 if row.length else 0, unfinished=None)
        return row._replace(inode=found.st_ino if found else 0), found.st_size if found else 0

    def _is_large(self, row: FileRow) -> bool:
        return bool(row.host) and 0 < self.rotate_size <= row.length

    def _free_number(self, row: FileRow) -> int:
        """Return the number of the next segment; one that the store does not know is never overwritten."""
        number, suffixes = row.number, ("", *rotation.SUFFIXES.values())
        while any(
            self.folders.find(rotation.closed_name(row.path, number) + suffix)
            for suffix in suffixes
        ):
            number += 1
        return number

    def _segment(self, row: FileRow, path: str, number: int, size: int) -> SegmentRow:
        about = (path, row.path, number, row.day, size, row.last_line)
        return SegmentRow(*about, compressed="", batch=self.batch, length=size)

    def _announce(self, closing: list[SegmentRow], rows: list[FileRow]) -> None:
        if closing or rows:
            batch = self.store.read_batch()
            with self.store.transaction():
                self.store.put_files(rows)
                self.store.put_segments(closing)
                if batch and closing:  # what is closed now is never taken back
                    self.store.put_batch(
                        batch._replace(first=batch.until, previous_id=batch.commit_id)
                    )
            self.names.mark_stored()
        fault("announced")

    # doing it

    def _append(self, path: str, pieces: list[bytes]) -> None:
        descriptor = self._descriptor(path)
        with self.folders.naming(path):
            self._hold_length(path, descriptor)
            for begin in range(0, len(pieces), _MOST_PIECES):
                part = pieces[begin : begin + _MOST_PIECES]
                total = sum(map(len, part))
                written = os.writev(descriptor, part)
                if written != total:
                    disk.write_all(descriptor, b"".join(part)[written:])
                self._lives[path].size += total
                if total >= _LARGE:
                    disk.start_writeback(descriptor)  # while the next messages come in
        fault("written")

    def _close(self, segment: SegmentRow) -> None:
        path = segment.live  # nobody has it open: the batch has not touched it
        fault("closed")
        self.folders.rename(path, segment.path)
        fault("rotated")
        self.closed.append(segment.path)
        self._make(path)

    def _descriptor(self, path: str) -> int:
        if (descriptor := self._open.get(path)) is not None:
            return descriptor
        if not self._lives[path].inode:
            return self._make(path)
        self._close_too_many()
        with self.folders.open_parent(path) as (folder, name):
            descriptor = self._open[path] = folder.open(name, _FLAGS)
        os.lseek(descriptor, self._lives[path].size, os.SEEK_SET)
        return descriptor

    def _hold_length(self, path: str, descriptor: int) -> None:
        """Cut off what others have appended; raises OSError where they have cut the file."""
        ours, found = self._lives[path].size, os.fstat(descriptor).st_size
        if found < ours:
            raise OSError(errno.ESTALE, "was cut while lines came; they are written again")
        if found > ours:
            self._cut_off[path] += found - ours
            os.ftruncate(descriptor, ours)

    def _close_too_many(self) -> None:
        # by closing all: one alone would cost as much time on the disk as all together
        if len(self._open) >= _MOST_OPEN:
            self._leave_all()

    def _make(self, path: str) -> int:
        self._close_too_many()
        self.folders.note_change(path)
        flags, permissions = _FLAGS | os.O_CREAT | os.O_EXCL, self.folders.permissions
        try:
            with self.folders.make_parent(path) as (folder, name):
                descriptor = self._open[path] = folder.open(name, flags, permissions.file)
        except (FileExistsError, NotADirectoryError):
            self._forget(path)
            raise self._not_ours(path) from None
        set_owner_and_mode(descriptor, permissions.file, permissions)
        self._lives[path].inode = os.fstat(descriptor).st_ino
        return descriptor

    def _forget(self, path: str) -> None:
        """Forget a live file without lines: its path is taken, and the next attempt gives another."""
        with self.store.transaction():
            self.store.forget_files([path])

    def _not_ours(self, path: str) -> OSError:
        words = "was made by somebody else just now; move it away"
        return FileExistsError(errno.EEXIST, words, str(self.folders.root.path / path))

    # the end of the batch

    def sync(self) -> None:
        """Bring everything that was appended, and the names, to disk; raises OSError."""
        if self._has_left or len(self._open) > _MANY:
            self._leave_all()
            if self._has_left:
                self.folders.sync_file_system()
        else:
            for descriptor in self._open.values() if len(self._open) > 1 else ():
                disk.start_writeback(descriptor)
            for path, descriptor in self._open.items():
                self._finish(path, descriptor)
        fault("files_synced")
        self.folders.sync()
        disk.raise_if_failed(self.folders.root.descriptor)
        self._has_left = False

    def _leave_all(self) -> None:
        """Close all files; without a sync where one for all can be made at the batch's end."""
        self._has_left = self._has_left or disk.can_sync_file_system(self.folders.root.descriptor)
        while self._open:
            self._finish_and_close(*self._open.popitem())

    def _finish(self, path: str, descriptor: int) -> None:
        """Bring a file to disk, unless one sync for all will; raises OSError also when nobody could ever read it."""
        with self.folders.naming(path):
            if not os.fstat(descriptor).st_nlink:
                raise OSError(errno.ESTALE, "was removed while lines came; they are written again")
            self._hold_length(path, descriptor)
            if not self._has_left:
                os.fdatasync(descriptor)

    def _finish_and_close(self, path: str, descriptor: int) -> None:
        try:
            self._finish(path, descriptor)
        finally:
            os.close(descriptor)

    def collect_notices(self) -> list[str]:
        """Return what somebody else did to files."""
        words = "somebody else appended to it were cut off; a received file must not be written to"
        return [
            *self.notices,
            *(f"{path}: {n} bytes that {words}" for path, n in self._cut_off.items()),
        ]

    def rows(self, unfinished: Mapping[str, str | None]) -> Iterator[FileRow]:
        """Yield the rows of all files that the batch has touched, as they are now.

        `unfinished` has the open line at the end of each file that got lines, None for no open one.
        """
        for path, live in self._lives.items():
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
        while self._open:
            os.close(self._open.popitem()[1])


def _begun_anew(row: FileRow, batch: int) -> FileRow:
    """Return the row of a file that is to be made, or is empty: what stands in it is a batch's."""
    unfinished = row.unfinished if row.unfinished != UNKNOWN else None
    return row._replace(
        length=0,
        length_before=0,
        last_line_before=row.last_line,
        unfinished=unfinished,
        unfinished_before=unfinished,
        batch=batch,
    )
