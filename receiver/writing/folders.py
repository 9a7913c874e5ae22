"""The folders below the output folder: opened name by name and never through a symbolic link, made where they are missing.

Descriptors of the most recently used stay open, few of them; what changed in a folder is on disk after `sync`.
"""

import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from receiver.permissions import Permissions
from receiver.writing.logbook import sync_folder

__all__ = ["Folders", "give", "make_folder", "most_open", "walk", "within"]

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_OPEN = 128
_USUAL = Permissions()


class Folders:
    """The output folder and those below it, by their paths relative to it; itself is the empty path."""

    def __init__(self, root: Path, permissions: Permissions = _USUAL) -> None:
        """Open the output folder itself; raises OSError."""
        self._permissions = permissions
        self._most = most_open(_MOST_OPEN)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._changed: set[str] = set()

    def open(self, folder: str) -> int:
        """Return the descriptor of a folder that is there; good until the next call. Raises OSError."""
        if not folder:
            return self._root
        if (known := self._open.get(folder)) is not None:
            self._open.move_to_end(folder)
            return known
        parent, _, name = folder.rpartition("/")
        return self._keep(folder, self._enter(self.open(parent), name, folder))

    def at(self, path: str) -> tuple[str, int]:
        """Return the name of a file and the descriptor of its folder, which is there; raises OSError."""
        folder, _, name = path.rpartition("/")
        return name, self.open(folder)

    def make(self, folder: str) -> int:
        """Return the descriptor of a folder, made with all above it where it is missing; raises OSError."""
        try:
            return self.open(folder)
        except FileNotFoundError:
            pass
        parent, _, name = folder.rpartition("/")
        above = self.make(parent)
        with suppress(FileExistsError):  # that's fine: another partition's task was quicker
            os.mkdir(name, self._permissions.folder, dir_fd=above)
        made = self._keep(folder, self._enter(above, name, folder))
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
            with suppress(
                FileNotFoundError
            ):  # that's fine: whoever removed it took its names along
                os.fsync(self.open(folder))
        self._changed.clear()

    def look_again(self) -> None:
        """Let go of the descriptors: what is at their paths may have been changed by other hands."""
        while self._open:
            os.close(self._open.popitem()[1])

    def close(self) -> None:
        """Let go of everything."""
        self.look_again()
        os.close(self._root)

    def _enter(self, parent: int, name: str, folder: str) -> int:
        try:
            return os.open(name, _FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                words = "is a symbolic link or no folder; move it away"
                raise OSError(errno.ELOOP, words, folder) from None
            error.filename = folder
            raise

    def _keep(self, folder: str, descriptor: int) -> int:
        while len(self._open) >= self._most:
            os.close(self._open.popitem(last=False)[1])
        self._open[folder] = descriptor
        return descriptor


def give(descriptor: int, mode: int, permissions: Permissions) -> None:
    """Give a file or folder that was just made its mode and owner; raises OSError."""
    if (permissions.user, permissions.group) != (-1, -1):
        os.fchown(descriptor, permissions.user, permissions.group)
    os.fchmod(descriptor, mode)  # after the owner, whose change takes away set-id bits


def make_folder(folder: Path, permissions: Permissions = _USUAL) -> None:
    """Make a folder of ours, and bring its name to disk; that it exists is fine. Raises OSError."""
    if not folder.is_dir():
        folder.mkdir(mode=permissions.folder, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            give(opened, permissions.folder, permissions)
        finally:
            os.close(opened)
        sync_folder(folder.parent)


@contextmanager
def within(root: Path, path: str) -> Iterator[Path]:
    """Open the folder of a file below `root` and give a path of the file that leads through no link; raises OSError."""
    folders = Folders(root)
    try:
        folder, _, name = path.rpartition("/")
        yield Path(f"/proc/self/fd/{folders.open(folder)}", name)
    except OSError as error:
        error.filename = str(root / path)  # as people know it
        raise
    finally:
        folders.close()


def most_open(wanted: int) -> int:
    """Return how many of `wanted` descriptors one kind of a task's files may keep, of what the process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(wanted, limit // 8)) if limit != resource.RLIM_INFINITY else wanted


def walk(root: Path, below: str = "") -> Iterator[str]:
    """Yield the paths of all files below a folder, relative to it, without what is hidden; never through a link.

    Raises OSError; a folder that is removed meanwhile is none.
    """
    try:
        entries = os.scandir(root / below)
    except FileNotFoundError:
        if below:
            return
        raise
    with entries:
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from walk(root, path)
            else:
                yield path
