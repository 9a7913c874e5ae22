"""Files of folders that another user may write to, and files that are there whole or as they were before.

Root works in folders that belong to a service user, who can put a link, a pipe or a device in the place of any file: what
is in a `Folder` is reached by its descriptor, and never through a link. A file that is written takes its name in the end:
each writer has a temporary file of its own beside it. The next writer removes what a dead one has left.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from nats_logship.app.exits import OperatorError

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_FILE = "is no regular file; move it away"
_ROOT = 0
_SUFFIX = ".tmp"
_ABANDONED = 10.0  # seconds since a temporary file was last written to
FOLDER_ID, STORE_LOCK = ".folder-id", "logbroker.lock"
FOLDER_MARKS = (FOLDER_ID, STORE_LOCK)
"""Files that mark a folder which one of our programs writes to: a receiver or a shipper, a broker."""
Owner = tuple[int, int]
"""To whom a file belongs: the numbers of a user and a group."""


class Folder(AbstractContextManager["Folder"]):
    """An open folder; what it raises are OSErrors that name the file by its whole path."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over the descriptor; `path` is what people call the folder."""
        self.path = path
        self.descriptor = descriptor

    @property
    def owner(self) -> Owner:
        """To whom the folder belongs."""
        found = os.fstat(self.descriptor)
        return found.st_uid, found.st_gid

    def open(self, name: str, flags: int, mode: int = 0o640) -> int:
        """Open a regular file, and return its descriptor; a link, a pipe or a device is refused, and waited for never."""
        with self._told(name):
            descriptor = os.open(name, flags | _FILE, mode, dir_fd=self.descriptor)
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                os.close(descriptor)
                if stat.S_ISDIR(mode):
                    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
                raise OSError(errno.EINVAL, _NO_FILE)
        return descriptor

    def find(self, name: str) -> os.stat_result | None:
        """Return what a regular file is now, None when it is not there; whatever else is there is refused."""
        with self._told(name):
            try:
                found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if stat.S_ISDIR(found.st_mode):
                raise OSError(errno.EISDIR, _NO_FILE)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.ELOOP, _NO_FILE)
        return found

    def read(self, name: str) -> bytes:
        """Return what a regular file holds."""
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def enter(self, name: str) -> "Folder":
        """Open a folder in this one."""
        with self._told(name):
            return Folder(self.path / name, os.open(name, _LIST, dir_fd=self.descriptor))

    def make(self, name: str, mode: int = 0o750) -> "Folder":
        """Open a folder in this one, which is made when it is not there, for the owner of this one."""
        try:
            with self._told(name):
                os.mkdir(name, mode, dir_fd=self.descriptor)
        except FileExistsError:
            return self.enter(name)
        made = self.enter(name)
        if not made.names():
            _give(made.descriptor, self.owner)
        return made

    def names(self) -> list[str]:
        """Return the names of what is in it."""
        with self._told(""):
            return os.listdir(self.descriptor)  # noqa: PTH208 - of a descriptor

    def remove(self, name: str) -> None:
        """Remove a file; a link itself, never what it points to."""
        with self._told(name):
            os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, new: str) -> None:
        """Give a file another name in this folder, in the place of what has it."""
        with self._told(new):
            os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def sync(self) -> None:
        """Have on disk the names that were made, changed or removed in it."""
        with self._told(""):
            os.fsync(self.descriptor)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
                kind = _kind(name, self.descriptor)
                number = errno.ELOOP if kind else error.errno
                words = kind or error.strerror
                raise OSError(number, words, str(self.path / name)) from None
            error.filename = str(self.path / name)
            raise

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self.descriptor)

    def __exit__(self, *_: object) -> None:
        self.close()


def _give(descriptor: int, owner: Owner) -> None:
    if os.fstat(descriptor).st_uid == os.geteuid() == _ROOT:
        with suppress(PermissionError):  # root of a container may not be allowed to
            os.fchown(descriptor, *owner)


def open_folder(path: Path) -> Folder:
    """Open a folder that the user names, through any link; raises OSError."""
    return Folder(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def make_folder(path: Path, mode: int = 0o750) -> Folder:
    """Open a folder as `open_folder` does, and make it when it is not there; raises OSError."""
    with suppress(FileExistsError):
        path.mkdir(mode, parents=True)
    return open_folder(path)


def read_file(path: Path) -> bytes:
    """Return what a regular file holds that the user names, through any link; raises OSError, never waits for a pipe."""
    real = path.resolve()
    with open_folder(real.parent) as folder:
        return folder.read(real.name)


def _kind(name: str, folder: int) -> str:
    with suppress(OSError):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return "is a symbolic link, which is not followed; move it away"
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            return _NO_FILE
    return ""


@contextmanager
def replace_file(
    folder: Folder, name: str, temporary: str, mode: int = 0o640
) -> Iterator[IO[bytes]]:
    """Yield the file `temporary`, which takes the place of `name` at the end, once it is on disk.

    After an exception from inside `name` is as it was. A file `temporary` that a killed writer has
    left is removed first: only one writer at a time may use that name. Raises OSError.
    """
    with suppress(FileNotFoundError):
        folder.remove(temporary)
    descriptor = folder.open(temporary, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            folder.rename(temporary, name)
    finally:
        with suppress(OSError):  # the file was renamed, or the next writer removes it
            folder.remove(temporary)
    folder.sync()


def write_atomic(path: Path, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file so that it is there whole or as it was before, also after a crash; raises `OperatorError`.

    Text is written as UTF-8. From the first byte on nobody may do more with it than `mode` says.
    """
    with report_errors(path), open_folder(path.parent) as folder:
        _write(folder, path.name, content, mode)


def write_for_owner(folder: Folder, name: str, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file as `write_atomic` does; where root writes it, it gets the owner of the folder, who is to read it."""
    with report_errors(folder.path / name):
        _write(folder, name, content, mode, folder.owner)


@contextmanager
def report_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Have an OSError from inside come as an `OperatorError` that says what cannot be done with a file or folder."""
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"cannot {verb} {path}: {error.strerror or error}; check the disk and the folder's owner"
        ) from None


def _write(
    folder: Folder, name: str, content: str | bytes, mode: int, owner: Owner | None = None
) -> None:
    """Write a file through a temporary one, whose name nobody else uses; raises OSError.

    What dead writers of `name` have left is removed first.
    """
    _remove_leftovers(folder, name)
    temporary = f"{name}.{secrets.token_hex(4)}{_SUFFIX}"
    with replace_file(folder, name, temporary, mode) as file:
        if owner is not None:
            _give(file.fileno(), owner)
        file.write(content.encode() if isinstance(content, str) else content)


def _remove_leftovers(folder: Folder, name: str) -> None:
    """Remove what dead writers of the name have left; what cannot be removed is left for the next time."""
    with suppress(OSError):
        for left in folder.names():
            if left.endswith(_SUFFIX) and left.removesuffix(_SUFFIX).rpartition(".")[0] == name:
                written = os.stat(left, dir_fd=folder.descriptor, follow_symlinks=False).st_mtime
                if abs(time.time() - written) > _ABANDONED:  # noqa: TID251 - that of the file system
                    folder.remove(left)
