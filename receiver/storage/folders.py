"""The folders below the output folder: opened name by name and never through a symbolic link, made where they are missing.

What changed in a folder is on disk after `sync`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from receiver.storage import disk
from receiver.storage.disk import REFUSED, sync_folder
from receiver.storage.layout import Permissions

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_DEEPEST = 64  # folders below the output folder; a source file's path has 32, a template some more
_USUAL = Permissions()

_settled: set[Path] = set()
"""Folders whose names this process has brought to disk."""


class Folders:
    """The output folder and those below it; paths are relative to it. Only the folder itself stays open."""

    def __init__(self, root: Path, permissions: Permissions = _USUAL) -> None:
        """Open the output folder itself; raises OSError."""
        self._path = root
        self._permissions = permissions
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.inode = os.fstat(self._root).st_ino
        self._changed: set[str] = set()

    @contextmanager
    def at(self, path: str, *, make: bool = False) -> Iterator[tuple[str, int]]:
        """Give the name of a file and the descriptor of its folder, made with all above it where that is wanted.

        Raises OSError, also from inside, which names the whole path.
        """
        *above, name = path.split("/")
        with ExitStack() as stack, self.naming(path):
            opened, reached = self._root, self._path
            for folder in above:
                reached /= folder
                opened = self._below(opened, reached, make=make)
                stack.callback(os.close, opened)
            yield name, opened

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Have an OSError from inside name the whole path of what is at `path`."""
        try:
            yield
        except OSError as error:
            if not str(error.filename).startswith("/"):
                error.filename = str(self._path / path)
            raise

    def _below(self, above: int, path: Path, *, make: bool) -> int:
        """Return the descriptor of the folder at a path in the one `above`."""
        try:
            return os.open(path.name, _FLAGS, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
        except OSError as error:
            if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                words = "is a symbolic link or no folder; move it away"
                raise OSError(errno.ELOOP, words, str(path)) from None
            raise
        with suppress(FileExistsError):  # that's fine: another partition's task was quicker
            os.mkdir(path.name, self._permissions.folder, dir_fd=above)
        made = os.open(path.name, _FLAGS, dir_fd=above)
        give(made, self._permissions.folder, self._permissions)
        return made

    def find(self, path: str) -> os.stat_result | None:
        """Return what a file is now, None when it is not there; raises OSError, also when it is no regular file."""
        try:
            with self.at(path) as (name, folder):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ELOOP, REFUSED, str(self._path / path))
        return found

    def rename(self, path: str, to: str) -> None:
        """Rename a file within its folder; on disk with `sync`. Raises OSError."""
        self.note_change(path)
        with self.at(path) as (name, folder):
            os.rename(name, to.rpartition("/")[2], src_dir_fd=folder, dst_dir_fd=folder)

    def note_change(self, path: str) -> None:
        """Remember that a file was made, renamed or removed; whether its folders were made, it need not be known."""
        while path:
            path = path.rpartition("/")[0]
            self._changed.add(path)

    def sync(self) -> None:
        """Bring the names in all changed folders to disk; raises OSError."""
        for folder in sorted(self._changed):
            # that's fine: whoever removed it took its names along
            with (
                suppress(FileNotFoundError),
                self.at(f"{folder}/." if folder else ".") as (_, opened),
            ):
                os.fsync(opened)
        self._changed.clear()

    def can_sync_all(self) -> bool:
        """Whether one sync of the output folder's file system is as good as one of each file."""
        return disk.can_sync_all(self._root)

    def sync_all(self) -> None:
        """Bring to disk what was written on the output folder's file system since it was opened, and names; raises OSError."""
        disk.sync_all(self._root)
        self._changed.clear()

    def close(self) -> None:
        """Let go of it."""
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
    try:
        with closing(Folders(root)) as folders, folders.at(path) as (name, folder):
            yield Path(f"/proc/self/fd/{folder}", name)
    except OSError as error:
        if not error.filename or str(error.filename).startswith("/proc/self/fd/"):
            error.filename = str(root / path)  # as people know it
        raise


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
