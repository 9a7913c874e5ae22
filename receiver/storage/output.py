"""The live files of a partition as one batch writes to them: announced, appended, closed, brought to disk.

Every name is opened relative to the output folder and never through a symbolic link. What is new or to be closed is in
the store before it is done; what is appended to a file that is known is not, as its committed length says where to cut.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.app.faults import fault
from receiver.permissions import Permissions
from receiver.storage import disk, rotation
from receiver.storage.folders import Folders, give, most_open
from receiver.storage.names import Names
from receiver.storage.plan import Live, Run, Step, difference, planned
from receiver.storage.position import StoredBatch
from receiver.storage.rotation import Calendar
from receiver.storage.store import UNKNOWN, FileRow, SegmentRow, Store

__all__ = ["Output"]

_MOST_OPEN = 256  # descriptors that one task keeps; then all are closed
_MANY = 64  # files; one sync of the whole file system is cheaper than that many, though it takes others' bytes along
_LARGE = 1024 * 1024  # bytes
_MOST_PIECES = 1024  # IOV_MAX of Linux
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_NEVER = Calendar(timedelta())
_USUAL = Permissions()


class Output:
    """The output folder as one batch writes to it; used by one thread, under the partition's lock."""

    def __init__(
        self,
        root: Path,
        store: Store,
        names: Names,
        rotate_size: int,
        calendar: Calendar = _NEVER,
        permissions: Permissions = _USUAL,
    ) -> None:
        """Open the folder; raises OSError. `rotate_size` is in bytes, 0 is never; `calendar` tells when time rotates.

        What somebody else did to files is told in `notices`.
        """
        self._root = root
        self._store = store
        self._names = names
        self._limit = rotate_size
        self.calendar = calendar
        self._permissions = permissions
        self.folders = Folders(root, permissions)
        batch = store.batch()
        self.batch = batch.number + 1 if batch else 1
        self._most_open = most_open(_MOST_OPEN)
        self._lives: dict[str, Live] = {}
        self._open: dict[str, int] = {}
        self._has_left = False  # files that were closed without a sync
        self.closed: list[str] = []
        self.notices: list[str] = []

    def write(self, runs: Mapping[str, Iterable[Run]]) -> None:
        """Append runs to live files, closing them where size or time ask for it; raises OSError."""
        steps = {
            path: planned(self._touched(path), of_file, self._limit, self.calendar, self._segment)
            for path, of_file in runs.items()
        }
        self._carry_out(steps)

    def append(self, path: str, data: bytes) -> None:
        """Append to a live file that is no host's, and which neither size nor time closes; raises OSError."""
        runs = [Run(0, 0, [data])]
        self._carry_out({path: planned(self._touched(path), runs, 0, _NEVER, self._segment)})

    def close_files(self, paths: Iterable[str]) -> None:
        """Close live files that have lines; what is no file by now is left as it is. Raises OSError."""
        steps: dict[str, list[Step]] = {}
        for path in paths:
            with suppress(OSError):  # that's fine: it is told when lines come for it
                live = self._touched(path)
                if live.size:
                    steps[path] = [self._segment(live, live.number, live.size, live.moment)]
        self._carry_out(steps)

    def _carry_out(self, steps: Mapping[str, Sequence[Step]]) -> None:
        self._announce(steps)
        for path, of_file in steps.items():
            for step in of_file:
                if isinstance(step, SegmentRow):
                    self._close(path, step)
                else:
                    self._append(path, step)

    # what is there

    def _touched(self, path: str) -> Live:
        """Return a live file, held against what is on disk the first time that a batch asks; raises OSError."""
        if (live := self._lives.get(path)) is None:
            live = self._lives[path] = self._looked_at(path)
        return live

    def _looked_at(self, path: str) -> Live:
        row, found = self._store.file(path), self.folders.find(path)
        if row is None:
            if found:
                raise self._not_ours(path)
            row = self._names.row(path, self.batch)
            return Live(row, 0, 0, 1, 0, is_new=True, is_unannounced=True)
        if row.host and (notice := difference(row, found)):
            self.notices.append(notice)
        if found is None or (found.st_size == 0 and found.st_ino != row.inode):
            return self._begun_anew(row, path, is_there=found is not None)
        known = row._replace(
            length=found.st_size, length_before=found.st_size, inode=found.st_ino, batch=0
        )
        live = Live(known, found.st_size, row.last_line, row.number, found.st_ino)
        live.must_close = row.unfinished == UNKNOWN
        if (row.length, row.inode) != (found.st_size, found.st_ino):
            live.is_unannounced = live.must_close = True
            is_torn = self.folders.ends_in_line(path)
            live.row = known._replace(unfinished=UNKNOWN if is_torn else None)
        return live

    def _begun_anew(self, row: FileRow, path: str, *, is_there: bool) -> Live:
        if is_there:
            name, folder = self.folders.at(path)
            os.unlink(name, dir_fd=folder)  # it is empty, and not ours
        anew = row._replace(
            length=0, length_before=None, inode=0, unfinished=None, batch=self.batch
        )
        return Live(anew, 0, row.last_line, row.number, 0, is_new=True, is_unannounced=True)

    # what is to be done

    def _segment(self, live: Live, number: int, size: int, moment: int) -> SegmentRow:
        path = live.row.path
        while self._is_given(rotation.closed_name(path, number)):
            number += 1
        return SegmentRow(
            *(rotation.closed_name(path, number), path, number, live.row.day),
            inode=live.inode,
            size=size,
            last_line=moment,
            closed_at=_now(),
            compressed="",
            batch=self.batch,
            length=size,
        )

    def _is_given(self, path: str) -> bool:
        """Say whether a closed segment is there that the store does not know: it is never overwritten."""
        try:
            return any(
                self.folders.find(path + suffix) for suffix in ("", *rotation.SUFFIXES.values())
            )
        except OSError:
            return True

    def _announce(self, steps: Mapping[str, Iterable[Step]]) -> None:
        lives = (self._lives[path] for path in steps)
        rows = [live.row for live in lives if live.is_unannounced]
        segments = [
            step for of_file in steps.values() for step in of_file if isinstance(step, SegmentRow)
        ]
        if rows or segments:
            with self._store.transaction():
                self._store.put_files(rows)
                self._store.put_segments(segments)
            self._names.stored()
            for row in rows:
                self._lives[row.path].is_unannounced = False
        fault("announced")

    # doing it

    def _append(self, path: str, pieces: Sequence[bytes]) -> None:
        if not pieces:
            return
        descriptor = self._descriptor(path)
        try:
            self._pour(descriptor, pieces)
        except OSError as error:
            error.filename = str(self._root / path)
            raise
        self._lives[path].size += sum(map(len, pieces))
        fault("written")

    def _pour(self, descriptor: int, pieces: Sequence[bytes]) -> None:
        for begin in range(0, len(pieces), _MOST_PIECES):
            part = pieces[begin : begin + _MOST_PIECES]
            total = sum(map(len, part))
            written = os.writev(descriptor, part)
            if written != total:
                disk.write_rest(descriptor, b"".join(part)[written:])
            if total >= _LARGE:
                disk.begin_writing(descriptor)  # while the next messages come in

    def _close(self, path: str, segment: SegmentRow) -> None:
        live = self._lives[path]
        descriptor = self._descriptor(path)
        del self._open[path]
        self._finish_and_close(path, descriptor)
        fault("closed")
        with self.folders.naming(path):
            name, folder = self.folders.at(path)
            closed = segment.path.rpartition("/")[2]
            os.rename(name, closed, src_dir_fd=folder, dst_dir_fd=folder)
        fault("rotated")
        self.closed.append(segment.path)
        live.size, live.number = 0, segment.number + 1
        self._make(path)

    def _descriptor(self, path: str) -> int:
        if (descriptor := self._open.get(path)) is not None:
            return descriptor
        if len(self._open) >= self._most_open:
            self._free_descriptors()
        live = self._lives[path]
        if live.is_new and not live.inode:
            return self._make(path)
        with self.folders.naming(path):
            name, folder = self.folders.at(path)
            descriptor = os.open(name, _FLAGS, dir_fd=folder)
        self._open[path] = descriptor
        return descriptor

    def _free_descriptors(self) -> None:
        # all of them: one alone would cost as much time on the disk as all together
        if self._has_left or self.folders.can_sync_all():
            self._leave_all()
        else:
            self._settle_all()
            self._close_all()

    def _make(self, path: str) -> int:
        folder, _, name = path.rpartition("/")
        with self.folders.naming(path):
            self.folders.note_change(folder)
            try:
                descriptor = self._create(folder, name)
            except FileNotFoundError:  # the folder was empty, and removed
                self.folders.look_again()
                descriptor = self._create(folder, name)
            except FileExistsError:
                self._let_go(path)
                raise self._not_ours(path) from None
            self._open[path] = descriptor
            give(descriptor, self._permissions.file, self._permissions)
        self._lives[path].inode = os.fstat(descriptor).st_ino
        return descriptor

    def _let_go(self, path: str) -> None:
        """Take back that a file is made: somebody else has made it at this moment, and an undo would remove it."""
        row = self._lives[path].row
        with self._store.transaction():
            if row.number == 1:
                self._store.forget_files([path])
            else:
                self._store.put_files([row._replace(length=None, batch=0)])

    def _not_ours(self, path: str) -> OSError:
        words = "was made by somebody else just now; move it away"
        return FileExistsError(errno.EEXIST, words, str(self._root / path))

    def _create(self, folder: str, name: str) -> int:
        opened = self.folders.make(folder)
        flags = _FLAGS | os.O_CREAT | os.O_EXCL
        return os.open(name, flags, self._permissions.file, dir_fd=opened)

    # the end of the batch

    def sync(self) -> None:
        """Bring everything that was appended, and the names, to disk; raises OSError."""
        if self._has_left or (len(self._open) > _MANY and self.folders.can_sync_all()):
            self._leave_all()
            self.folders.sync_all()
        else:
            self._settle_all()
            fault("files_synced")
            self.folders.sync()
        self._has_left = False

    def _settle_all(self) -> None:
        if len(self._open) > 1:
            for descriptor in self._open.values():
                disk.begin_writing(descriptor)
        for path, descriptor in self._open.items():
            self._finish(path, descriptor)

    def _leave_all(self) -> None:
        """Close all files without a sync of their own: one for all of them is due by the end of the batch."""
        self._has_left = True
        while self._open:
            self._finish_and_close(*self._open.popitem())

    def _finish(self, path: str, descriptor: int) -> None:
        """Bring a file to disk, unless one sync for all will; raises OSError also when nobody could ever read it."""
        found, live = os.fstat(descriptor), self._lives[path]
        if not found.st_nlink:
            words = "was removed while lines came; they are written again"
            raise OSError(errno.ESTALE, words, str(self._root / path))
        try:
            if not self._has_left or found.st_dev != self.folders.device:
                os.fdatasync(descriptor)
        except OSError as error:
            error.filename = str(self._root / path)
            raise
        if found.st_size < live.size:
            self.notices.append(
                f"{path} was cut by somebody else while lines were written to it: it has {found.st_size} bytes of "
                f"{live.size}, the others are missing in it"
            )
        live.size = found.st_size

    def _finish_and_close(self, path: str, descriptor: int) -> None:
        try:
            self._finish(path, descriptor)
        finally:
            os.close(descriptor)

    def _over(self, today: str) -> list[SegmentRow]:
        rows = self._store.files(
            "day != '' AND day < ? AND length IS NOT NULL AND path NOT IN (SELECT path FROM segments)",
            today,
        )
        return [
            SegmentRow(
                *(row.path, row.path, row.number, row.day, row.inode, row.length or 0),
                last_line=row.last_line,
                closed_at=_now(),
                compressed="",
                batch=self.batch,
                length=row.length,
            )
            for row in rows
            if row.path not in self._lives
        ]

    def put(self, batch: StoredBatch, today: str, unfinished: Mapping[str, str]) -> None:
        """Have the store say what was written, within a transaction; `unfinished` has source files by path.

        Files of days before `today` are closed as they are.
        """
        over = self._over(today) if today else []
        self._store.put_files(self._rows(unfinished))
        self._store.put_segments(over)
        self._store.put_batch(batch)
        self.closed += [segment.path for segment in over]

    def _rows(self, unfinished: Mapping[str, str]) -> list[FileRow]:
        return [
            live.row._replace(
                length=live.size,
                length_before=None if live.is_new else live.row.length,
                inode=live.inode,
                number=live.number,
                last_line=live.moment,
                last_line_before=live.row.last_line,
                unfinished=unfinished.get(path),
                unfinished_before=live.row.unfinished,
                batch=self.batch,
            )
            for path, live in self._lives.items()
            if live.inode
        ]

    def _close_all(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        self._close_all()
        self.folders.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")  # noqa: TID251 - for a person
