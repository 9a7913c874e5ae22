"""The folders below the output folder: opened name by name and never through a symbolic link, made where they are missing.

What changed in a folder is on disk after `sync`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from nats_logship.app.files import Folder, open_folder
from receiver.storage import disk
from receiver.storage.layout import Permissions

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64  # folders below the output folder; a source file's path has 32, a template some more
_USUAL = Permissions()

_settled: set[Path] = set()
"""Folders whose names this process has brought to disk."""


class Folders:
    """The output folder and those below it; paths are relative to it. Only the folder itself stays open."""

    def __init__(self, root: Path, permissions: Permissions = _USUAL) -> None:
        """Open the output folder itself; raises OSError."""
        self.root = open_folder(root)
        self.permissions = permissions
        self.inode = os.fstat(self.root.descriptor).st_ino
        self._changed: set[str] = set()

    @contextmanager
    def at(self, path: str, *, make: bool = False) -> Iterator[tuple[Folder, str]]:
        """Give the folder of a file, made with all above it where that is wanted, and the file's name; raises OSError."""
        *above, name = path.split("/")
        if not above:
            yield self.root, name
            return
        opened = [self.root.descriptor]
        try:
            for number, one in enumerate(above):
                opened.append(self._below(opened[-1], one, above[:number], make=make))
            yield Folder(self.root.path.joinpath(*above), opened[-1]), name
        finally:
            for descriptor in opened[1:]:
                os.close(descriptor)

    def _below(self, descriptor: int, name: str, above: list[str], *, make: bool) -> int:
        """Return the descriptor of a folder in the one whose path is `above`."""
        with suppress(OSError):
            return os.open(name, _FOLDER, dir_fd=descriptor)
        parent = Folder(self.root.path.joinpath(*above), descriptor)
        if not make:
            return parent.enter(name).descriptor  # raises, with the reason
        # that's fine: another partition's task was quicker
        with suppress(FileExistsError), self.naming("/".join([*above, name])):
            os.mkdir(name, self.permissions.folder, dir_fd=descriptor)
        made = parent.enter(name).descriptor
        set_owner_and_mode(made, self.permissions.folder, self.permissions)
        return made

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Have an OSError from inside name the whole path of a file."""
        try:
            yield
        except OSError as error:
            error.filename = str(self.root.path / path)
            raise

    def find(self, path: str) -> os.stat_result | None:
        """Return what a file is now, None when it is not there; raises OSError, also when it is no regular file."""
        try:
            with self.at(path) as (folder, name):
                return folder.find(name)
        except FileNotFoundError:
            return None

    def is_taken(self, path: str, *, tangled: bool) -> bool:
        """Whether something is at a path; raises OSError for what is no regular file.

        With `tangled` another partition may have made a folder there, or a file where a folder of
        the path has to be: then the path is taken, too.
        """
        try:
            return self.find(path) is not None
        except (IsADirectoryError, NotADirectoryError):
            if not tangled:
                raise
            return True

    def rename(self, path: str, to: str) -> None:
        """Rename a file open_parent its folder; on disk with `sync`. Raises OSError."""
        self.note_change(path)
        with self.at(path) as (folder, name):
            folder.rename(name, to.rpartition("/")[2])

    def cut(self, path: str, length: int) -> None:
        """Cut a file to so many bytes, on disk when this returns; raises OSError."""
        with self.at(path) as (folder, name), self.naming(path):
            descriptor = folder.open(name, os.O_WRONLY)
            try:
                os.ftruncate(descriptor, length)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

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
                self.at(f"{folder}/." if folder else ".") as (opened, _),
            ):
                opened.sync()
        self._changed.clear()

    def sync_all(self) -> None:
        """Bring to disk what was written on the output folder's file system since it was opened, and names; raises OSError."""
        disk.sync_file_system(self.root.descriptor)
        self._changed.clear()

    def close(self) -> None:
        """Let go of it."""
        self.root.close()


def set_owner_and_mode(descriptor: int, mode: int, permissions: Permissions) -> None:
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
        with open_folder(folder) as opened:
            set_owner_and_mode(opened.descriptor, permissions.folder, permissions)
    # that's fine: a folder that we may not read is not ours
    with suppress(PermissionError), open_folder(folder.parent) as opened:
        opened.sync()
    _settled.add(folder)


@contextmanager
def open_parent(root: Path, path: str, *, make: bool = False) -> Iterator[tuple[Folder, str]]:
    """Give the folder of a file below `root`, which no link leads to, and the file's name; raises OSError."""
    with closing(Folders(root)) as folders, folders.at(path, make=make) as found:
        yield found


def remove_empty(root: Path, path: str) -> None:
    """Remove a folder below `root` and those above it, as long as they hold nothing; raises OSError.

    Whoever has it open and makes a file in it finds it gone, and makes it again.
    """
    while path:
        try:
            with open_parent(root, path) as (above, name):
                os.rmdir(name, dir_fd=above.descriptor)
        except FileNotFoundError:
            pass  # that's fine: somebody else has removed it
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}:
                return
            raise
        path = path.rpartition("/")[0]


def walk_files(root: Path) -> Iterator[str]:
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
