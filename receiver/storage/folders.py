"""The folders below the output folder: opened name by name and never through a symbolic link, made where they are missing.

Descriptors of the most recently used stay open, few of them; what changed in a folder is on disk after `sync`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from receiver.storage import disk
from receiver.storage.disk import REFUSED, sync_folder
from receiver.storage.layout import Permissions

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_OPEN = 96  # descriptors; a process has 1024 as a rule, and so many for files
_DEEPEST = 64  # folders below the output folder; a source file's path has 32, a template some more
_USUAL = Permissions()

_settled: set[Path] = set()
"""Folders whose names this process has brought to disk."""


class Folders:
    """The output folder and those below it, by their paths relative to it; itself is the empty path."""

    def __init__(self, root: Path, permissions: Permissions = _USUAL) -> None:
        """Open the output folder itself; raises OSError."""
        self._path = root
        self._permissions = permissions
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.inode = os.fstat(self._root).st_ino
        self._open: dict[str, int] = {}
        self._changed: set[str] = set()

    def open(self, folder: str) -> int:
        """Return the descriptor of a folder that is there; good until the next call. Raises OSError."""
        if not folder:
            return self._root
        if (known := self._open.get(folder)) is not None:
            return known
        parent, _, name = folder.rpartition("/")
        above = self.open(parent)
        try:
            with self.naming(folder):
                descriptor = os.open(name, _FLAGS, dir_fd=above)
        except OSError as error:
            if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                words = "is a symbolic link or no folder; move it away"
                raise OSError(errno.ELOOP, words, str(self._path / folder)) from None
            raise
        while len(self._open) >= _MOST_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[folder] = descriptor
        return descriptor

    def at(self, path: str) -> tuple[str, int]:
        """Return the name of a file and the descriptor of its folder, which is there; raises OSError."""
        folder, _, name = path.rpartition("/")
        return name, self.open(folder)

    def find(self, path: str) -> os.stat_result | None:
        """Return what a file is now, None when it is not there; raises OSError, also when it is no regular file."""
        try:
            with self.naming(path):
                name, opened = self.at(path)
                found = os.stat(name, dir_fd=opened, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ELOOP, REFUSED, str(self._path / path))
        return found

    def rename(self, path: str, to: str) -> None:
        """Rename a file within its folder; on disk with `sync`. Raises OSError."""
        with self.naming(path):
            self.note_change(path.rpartition("/")[0])
            name, folder = self.at(path)
            os.rename(name, to.rpartition("/")[2], src_dir_fd=folder, dst_dir_fd=folder)

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Have an OSError from inside name the whole path of what is at `path`, or that of a folder above it."""
        try:
            yield
        except OSError as error:
            if not str(error.filename).startswith("/"):
                error.filename = str(self._path / path)
            raise

    def make(self, folder: str) -> int:
        """Return the descriptor of a folder, made with all above it where it is missing; raises OSError."""
        try:
            return self.open(folder)
        except FileNotFoundError:
            pass
        parent, _, name = folder.rpartition("/")
        above = self.make(parent)
        with self.naming(folder):
            with suppress(FileExistsError):  # that's fine: another partition's task was quicker
                os.mkdir(name, self._permissions.folder, dir_fd=above)
            made = self.open(folder)
            give(made, self._permissions.folder, self._permissions)
        return made

    def note_change(self, folder: str) -> None:
        """Remember that names in a folder were made, renamed or removed; whether it was made itself, it need not be known."""
        while folder not in self._changed:
            self._changed.add(folder)
            folder = folder.rpartition("/")[0]

    def sync(self) -> None:
        """Bring the names in all changed folders to disk; raises OSError."""
        for folder in sorted(self._changed):
            # that's fine: whoever removed it took its names along
            with suppress(FileNotFoundError), self.naming(folder):
                os.fsync(self.open(folder))
        self._changed.clear()

    def can_sync_all(self) -> bool:
        """Whether one sync of the output folder's file system is as good as one of each file."""
        return disk.can_sync_all(self._root)

    def sync_all(self) -> None:
        """Bring to disk what was written on the output folder's file system since it was opened, and names; raises OSError."""
        disk.sync_all(self._root)
        self._changed.clear()

    def look_again(self) -> None:
        """Let go of the descriptors: what is at their paths may have been changed by other hands."""
        while self._open:
            os.close(self._open.popitem()[1])

    def close(self) -> None:
        """Let go of everything."""
        self.look_again()
        os.close(self._root)


def give(descriptor: int, mode: int, permissions: Permissions) -> None:
    """Give a file or folder that was just made its mode and owner; raises OSError."""
    if (permissions.user, permissions.group) != (-1, -1):
        os.fchown(descriptor, permissions.user, permissions.group)
    os.fchmod(descriptor, mode)  # after the owner, whose change takes away set-id bits


def make_folder(folder: Path, permissions: Permissions = _USUAL) -> None:
    """Make a folder and what is missing above it, names on disk; that it exists is fine. Raises OSError.

    Whoever made one that is found may have died before its name was on disk, so that is seen to once.
    """
    is_there = folder.is_dir()
    if is_there and folder in _settled:
        return
    if not is_there:
        make_folder(folder.parent, permissions)
        with suppress(FileExistsError):  # that's fine: somebody was quicker
            folder.mkdir(mode=permissions.folder)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            give(opened, permissions.folder, permissions)
        finally:
            os.close(opened)
    with suppress(PermissionError):  # that's fine: a folder that we may not read is not ours
        sync_folder(folder.parent)
    _settled.add(folder)


@contextmanager
def within(root: Path, path: str) -> Iterator[Path]:
    """Open the folder of a file below `root` and give a path of the file that leads through no link; raises OSError."""
    folder, _, name = path.rpartition("/")
    folders = Folders(root)
    try:
        yield Path(f"/proc/self/fd/{folders.open(folder)}", name)
    except OSError as error:
        if not error.filename or str(error.filename).startswith("/proc/self/fd/"):
            error.filename = str(root / path)  # as people know it
        raise
    finally:
        folders.close()


def remove_empty(root: Path, folder: str) -> None:
    """Remove a folder below `root` and those above it, as long as they hold nothing; raises OSError.

    Whoever has it open and makes a file in it finds it gone, and makes it again.
    """
    while folder:
        try:
            with within(root, folder) as path:
                path.rmdir()
        except FileNotFoundError:
            pass  # that's fine: somebody else has removed it
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}:
                return
            raise
        folder = folder.rpartition("/")[0]


def walk(root: Path) -> Iterator[str]:
    """Yield the paths of all regular files below a folder, relative to it, without what is hidden; never through a link.

    Raises OSError; a folder that is removed meanwhile is none, nor is one that is deeper than any of ours.
    """
    for folder, folders, names, opened in os.fwalk(root, onerror=_raised, follow_symlinks=False):
        below = os.path.relpath(folder, root)
        is_deepest = below.count("/") >= _DEEPEST
        folders[:] = [] if is_deepest else [one for one in folders if not one.startswith(".")]
        for name in names:
            with suppress(FileNotFoundError):
                about = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if not name.startswith(".") and stat.S_ISREG(about.st_mode):
                    yield name if below == "." else f"{below}/{name}"


def _raised(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
