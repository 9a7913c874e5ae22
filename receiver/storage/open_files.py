"""The live files that a batch has open: create, append, sync.

Each name is opened relative to the output folder and never through a symbolic link.
"""

import errno
import os
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from nats_logship.app.faults import fault
from receiver.storage import disk
from receiver.storage.folders import Folders, set_owner_and_mode
from receiver.storage.rows import FileRow, inode_of
from receiver.storage.surplus import Surplus

_MOST_OPEN = 256  # descriptors of one partition
_SPARE = 128  # descriptors of the process that are left to connections and stores
_MANY = 8  # files from which one sync of the file system is cheaper than a sync of each
_LARGE = 1024 * 1024  # bytes from which writeback starts before the batch ends
_MOST_PIECES = 1024  # IOV_MAX of Linux
_FLAGS = os.O_WRONLY  # without O_APPEND: lines go behind our own, whatever others have appended


@dataclass(slots=True)
class LiveFile:
    """A live file as the batch has written it; `row` is what is committed of it."""

    row: FileRow
    size: int
    moment: int
    inode: int


@dataclass(slots=True)
class OpenFiles:
    """The files of one batch, `live` by path, and the descriptors of those that are open.

    `cut_off` counts the bytes that other programs had appended, by path.
    """

    folders: Folders
    surplus: Surplus
    live: dict[str, LiveFile] = field(default_factory=dict)
    cut_off: Counter[str] = field(default_factory=Counter)
    _open: dict[str, int] = field(default_factory=dict)  # descriptors
    _syncs_all: bool = False  # files were closed without a sync: one of the file system follows
    _elsewhere: set[str] = field(default_factory=set)  # files that are on another file system

    def append(self, path: str, pieces: list[bytes]) -> None:
        """Append lines to a live file; raises OSError, and FileExistsError as `create` does."""
        descriptor = self._open_file(path)
        with self.folders.naming(path):
            self._require_length(path, descriptor, os.fstat(descriptor).st_size)
            for begin in range(0, len(pieces), _MOST_PIECES):
                part = pieces[begin : begin + _MOST_PIECES]
                total = sum(map(len, part))
                written = os.writev(descriptor, part)
                if written != total:
                    disk.write_all(descriptor, b"".join(part)[written:])
                self.live[path].size += total
                if total >= _LARGE:
                    disk.start_writeback(descriptor)
        if path in self.surplus.ends:
            self.surplus.note_written(path, self.live[path].size)
        fault("written")

    def _open_file(self, path: str) -> int:
        """Return the descriptor of a live file, at the end of its lines; create a new file."""
        if (descriptor := self._open.get(path)) is not None:
            return descriptor
        if not self.live[path].inode:
            return self.create(path)
        self._limit_open_files()
        with self.folders.open_parent(path) as (folder, name):
            descriptor = self._open[path] = folder.open(name, _FLAGS)
        if not self.live[path].size:  # who created it may have been killed before this
            self._set_owner_and_mode(descriptor)
        os.lseek(descriptor, self.live[path].size, os.SEEK_SET)
        return descriptor

    def create(self, path: str) -> int:
        """Create a live file and return its descriptor.

        Raises FileExistsError if another program was faster, and OSError.
        """
        self._limit_open_files()
        self.folders.note_change(path)
        flags, permissions = _FLAGS | os.O_CREAT | os.O_EXCL, self.folders.permissions
        try:
            with self.folders.make_parent(path) as (folder, name):
                descriptor = self._open[path] = folder.open(name, flags, permissions.file)
        except (FileExistsError, NotADirectoryError):
            raise self.describe_foreign(path) from None
        self._set_owner_and_mode(descriptor)
        self.live[path].inode = inode_of(os.fstat(descriptor))
        return descriptor

    def _set_owner_and_mode(self, descriptor: int) -> None:
        permissions = self.folders.permissions
        set_owner_and_mode(descriptor, permissions.file, permissions)

    def _require_length(self, path: str, descriptor: int, found: int) -> None:
        """Cut off what another program has appended; raise OSError if it has cut the file."""
        ours = self.live[path].size
        if found < ours:
            raise OSError(errno.ESTALE, "was cut while lines were written; they are written again")
        if found > ours:
            self.cut_foreign(path, ours, found, lambda end: os.ftruncate(descriptor, end))

    def _limit_open_files(self) -> None:
        """Close all files if too many are open here, or in the whole process.

        The kernel gives the lowest free number, so the newest one shows how many there are. To sync
        and close all files takes the disk no longer than one.
        """
        newest = next(reversed(self._open.values()), 0)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE
        if len(self._open) >= _MOST_OPEN or newest >= most > 0:
            self._finish_all()

    def cut_foreign(self, path: str, length: int, size: int, cut: Callable[[int], None]) -> None:
        """Cut what another program has appended to `length` bytes of our lines and the surplus."""
        end = max(length, self.surplus.ends.get(path, 0))
        if size > end:
            self.cut_off[path] += size - end
            cut(end)

    def describe_foreign(self, path: str) -> FileExistsError:
        """Return the error of a new live file at whose path another program has a file."""
        reason = "was created by another program just now; move it away"
        return FileExistsError(errno.EEXIST, reason, str(self.folders.root.path / path))

    def sync(self) -> None:
        """Bring all appended lines and all changed names to disk; raises OSError."""
        if self._syncs_all or len(self._open) > _MANY:
            self._finish_all()
            if self._syncs_all:
                self.folders.sync_file_system()
                for path in self._elsewhere:
                    self.folders.note_change(path)
        else:
            for descriptor in self._open.values() if len(self._open) > 1 else ():
                disk.start_writeback(descriptor)
            for path, descriptor in self._open.items():
                self._finish(path, descriptor)
        fault("files_synced")
        self.folders.sync()
        disk.raise_if_failed(self.folders.root.descriptor)
        self._syncs_all = False

    def _finish_all(self) -> None:
        """Close all files; sync each only if one sync of the file system cannot do it."""
        self._syncs_all = self._syncs_all or disk.can_sync_file_system(self.folders.device)
        while self._open:
            path, descriptor = self._open.popitem()
            try:
                self._finish(path, descriptor)
            finally:
                os.close(descriptor)

    def _finish(self, path: str, descriptor: int) -> None:
        """Sync a file, unless its file system is synced later.

        Raises OSError, also for a file that another program has removed.
        """
        with self.folders.naming(path):
            found = os.fstat(descriptor)
            if not found.st_nlink:
                reason = "was removed while lines were written; they are written again"
                raise OSError(errno.ESTALE, reason)
            self._require_length(path, descriptor, found.st_size)
            if found.st_dev != self.folders.device:
                self._elsewhere.add(path)
            if not self._syncs_all or path in self._elsewhere:
                os.fdatasync(descriptor)

    def close(self) -> None:
        """Close all files without a sync."""
        while self._open:
            os.close(self._open.popitem()[1])
