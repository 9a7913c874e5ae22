"""The output folder and the folders below it.

Each folder of a path is opened by its name in the one above, never through a symbolic link, and
created if it is missing. Changed names are on disk after `sync`.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from nats_logship.app.files import Folder, open_folder
from receiver.storage import disk
from receiver.storage.layout import Permissions
from receiver.storage.rows import inode_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64  # folders below the output folder; a source file's path has 32, a template some more
_USUAL = Permissions()

_synced: set[Path] = set()
"""Folders whose names this process has brought to disk."""


class Folders:
    """The output folder and those below it; paths are relative to it. Only itself stays open."""

    def __init__(self, root: Path, permissions: Permissions = _USUAL) -> None:
        """Open the output folder; raises OSError."""
        self.root = open_folder(root)
        self.permissions = permissions
        found = os.fstat(self.root.descriptor)
        self.inode, self.device = inode_of(found), found.st_dev
        self._changed: set[str] = set()

    def open_parent(self, path: str) -> AbstractContextManager[tuple[Folder, str]]:
        """Yield the open folder that a file is in, and the file's name; raises OSError."""
        return self._descend(path, self._enter)

    def make_parent(self, path: str) -> AbstractContextManager[tuple[Folder, str]]:
        """Yield what `open_parent` yields; create the folders that are missing."""
        return self._descend(path, self._make)

    @contextmanager
    def _descend(
        self, path: str, step: Callable[[Folder, str], int]
    ) -> Iterator[tuple[Folder, str]]:
        *above, name = path.split("/")
        folder, opened = self.root, list[int]()
        try:
            for one in above:
                opened.append(step(folder, one))
                folder = Folder(folder.path / one, opened[-1])
            yield folder, name
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _enter(self, parent: Folder, name: str) -> int:
        with suppress(OSError):
            return os.open(name, _FOLDER, dir_fd=parent.descriptor)
        return parent.enter(name).descriptor  # raises an error that names the folder

    def _make(self, parent: Folder, name: str) -> int:
        with suppress(OSError):
            return os.open(name, _FOLDER, dir_fd=parent.descriptor)
        try:
            os.mkdir(name, self.permissions.folder, dir_fd=parent.descriptor)
        except FileExistsError:
            pass  # that's fine: another partition's task may create it at the same time
        except OSError as error:
            error.filename = str(parent.path / name)
            raise
        made = parent.enter(name).descriptor
        set_owner_and_mode(made, self.permissions.folder, self.permissions)
        return made

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Let an OSError of the block name the whole path of a file."""
        try:
            yield
        except OSError as error:
            error.filename = str(self.root.path / path)  # made only now: many appends pass here
            raise

    def find(self, path: str) -> os.stat_result | None:
        """Return the status of a file, None if there is none.

        Raises OSError, also if something else than a regular file is at the path.
        """
        try:
            with self.open_parent(path) as (folder, name):
                return folder.find(name)
        except FileNotFoundError:
            return None

    def has_file(self, path: str) -> bool:
        """Whether a file is at a path; raises what `find` raises."""
        return self.find(path) is not None

    def is_occupied(self, path: str) -> bool:
        """Whether a file cannot be created at a path.

        Another partition may have a file or a folder there, or a file in the place of a folder.
        """
        try:
            return self.has_file(path)
        except (IsADirectoryError, NotADirectoryError):
            return True

    def rename(self, path: str, to: str) -> None:
        """Rename a file within its folder; on disk after `sync`. Raises OSError."""
        self.note_change(path)
        with self.open_parent(path) as (folder, name):
            folder.rename(name, to.rpartition("/")[2])

    def cut(self, path: str, length: int) -> None:
        """Cut a file to a length in bytes, on disk at the end; raises OSError."""
        with self.open_parent(path) as (folder, name), self.naming(path):
            descriptor = folder.open(name, os.O_WRONLY)
            try:
                os.ftruncate(descriptor, length)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def note_change(self, path: str) -> None:
        """Note that a file was created, renamed or removed, for `sync`.

        Notes all folders above it, too: any of them may be new.
        """
        while path:
            path = path.rpartition("/")[0]
            self._changed.add(path)

    def sync(self) -> None:
        """Bring the names in all changed folders to disk; raises OSError."""
        for path in sorted(self._changed):
            # that's fine: a folder that is gone has no names left
            with (
                suppress(FileNotFoundError),
                self.open_parent(f"{path}/." if path else ".") as (folder, _),
            ):
                folder.sync()
        self._changed.clear()

    def sync_file_system(self) -> None:
        """Bring to disk all bytes and names on its file system since the folder was opened.

        Raises OSError.
        """
        disk.sync_file_system(self.root.descriptor)
        self._changed.clear()

    def close(self) -> None:
        """Close the output folder."""
        self.root.close()


def set_owner_and_mode(descriptor: int, mode: int, permissions: Permissions) -> None:
    """Give a new file or folder its owner and mode; raises OSError."""
    if (permissions.user, permissions.group) != (-1, -1):
        os.fchown(descriptor, permissions.user, permissions.group)
    os.fchmod(descriptor, mode)  # after the owner: a change of owner clears set-id bits


def make_synced_folder(folder: Path, permissions: Permissions = _USUAL) -> None:
    """Create a folder and those above it unless they exist, names on disk; raises OSError.

    The process that created an existing folder may have died before its sync, so the first call for
    each folder syncs the name again.
    """
    exists = folder.is_dir()
    if exists and folder in _synced:
        return
    if not exists:
        make_synced_folder(folder.parent, permissions)
        with suppress(FileExistsError):  # that's fine: another process was faster
            folder.mkdir(mode=permissions.folder)
        with open_folder(folder) as opened:
            set_owner_and_mode(opened.descriptor, permissions.folder, permissions)
    # that's fine: a parent that we may not open was not created by us
    with suppress(PermissionError), open_folder(folder.parent) as opened:
        opened.sync()
    _synced.add(folder)


@contextmanager
def open_parent(root: Path, path: str) -> Iterator[tuple[Folder, str]]:
    """Yield the open folder of a file below `root`, and the file's name; raises OSError."""
    with closing(Folders(root)) as folders, folders.open_parent(path) as found:
        yield found


@contextmanager
def make_parent(root: Path, path: str) -> Iterator[tuple[Folder, str]]:
    """Yield what `open_parent` yields; create the folders that are missing."""
    with closing(Folders(root)) as folders, folders.make_parent(path) as found:
        yield found


def remove_empty_folders(root: Path, path: str) -> None:
    """Remove a folder below `root` if it is empty, and then those above it; raises OSError.

    A task that has the folder open and creates a file in it gets an error, and creates the folder
    again.
    """
    while path:
        try:
            with open_parent(root, path) as (above, name):
                os.rmdir(name, dir_fd=above.descriptor)
        except FileNotFoundError:
            pass  # that's fine: another process has removed it
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}:
                return
            raise
        path = path.rpartition("/")[0]


def walk_files(root: Path) -> Iterator[str]:
    """Yield the paths of all regular files below a folder, relative to it; raises OSError.

    Leaves out hidden files and folders, symbolic links, folders that are deeper than ours, and
    `lost+found`, which only root may read, where a disk is mounted.
    """
    for folder, folders, names, opened in os.fwalk(root, onerror=_raise, follow_symlinks=False):
        below = os.path.relpath(folder, root)
        folders[:] = _choose_folders(below, folders)
        for name in names:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if not name.startswith(".") and stat.S_ISREG(found.st_mode):
                    yield name if below == "." else f"{below}/{name}"


def _choose_folders(path: str, names: Sequence[str]) -> list[str]:
    if path.count("/") >= _DEEPEST:
        return []
    foreign = "lost+found" if path == "." else ""
    return [name for name in names if not name.startswith(".") and name != foreign]


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
