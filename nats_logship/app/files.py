"""Files in folders of other users, and files that are written whole or not at all.

Root works in folders of a service user, who can put a link, a pipe or a device in the place of any
file. So a `Folder` opens files by its descriptor and follows no link. A writer uses a temporary
file of its own and renames it at the end; the next writer removes those of killed writers.
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
_NO_FILE = "is not a regular file; move it away"
_LINK = "is a symbolic link, which is not followed; move it away"
_ROOT = 0
_SUFFIX = ".tmp"
_ABANDONED = 10.0  # seconds since a temporary file was last written
FOLDER_ID, STORE_LOCK = ".folder-id", "logbroker.lock"
FOLDER_MARKS = (FOLDER_ID, STORE_LOCK)
"""Files that mark a folder of a receiver or a shipper, and of a broker."""
Owner = tuple[int, int]
"""The numbers of a file's user and group."""


class Folder(AbstractContextManager["Folder"]):
    """An open folder; its methods raise OSErrors with the whole path of the file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over the descriptor; `path` is for messages."""
        self.path = path
        self.descriptor = descriptor

    @property
    def owner(self) -> Owner:
        """The owner of the folder."""
        found = os.fstat(self.descriptor)
        return found.st_uid, found.st_gid

    def open(self, name: str, flags: int, mode: int = 0o640) -> int:
        """Return the descriptor of a regular file; refuses links, pipes and devices at once."""
        with self._named_errors(name):
            descriptor = os.open(name, flags | _FILE, mode, dir_fd=self.descriptor)
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                os.close(descriptor)
                if stat.S_ISDIR(mode):
                    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
                raise OSError(errno.EINVAL, _NO_FILE)
        return descriptor

    def find(self, name: str) -> os.stat_result | None:
        """Return the status of a regular file, None without one; refuses anything else."""
        with self._named_errors(name):
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
        """Return the content of a regular file."""
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def enter(self, name: str) -> "Folder":
        """Open a folder in this one."""
        with self._named_errors(name):
            return Folder(self.path / name, os.open(name, _LIST, dir_fd=self.descriptor))

    def make(self, name: str, mode: int = 0o750) -> "Folder":
        """Open a folder in this one; if it is missing, create it for the owner of this one."""
        try:
            with self._named_errors(name):
                os.mkdir(name, mode, dir_fd=self.descriptor)
        except FileExistsError:
            return self.enter(name)
        made = self.enter(name)
        if not made.names():
            _give(made.descriptor, self.owner)
        return made

    def names(self) -> list[str]:
        """Return the names in the folder."""
        with self._named_errors(""):
            return os.listdir(self.descriptor)  # noqa: PTH208 - of a descriptor

    def remove(self, name: str) -> None:
        """Remove a file or a link, not the target of the link."""
        with self._named_errors(name):
            os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, new: str) -> None:
        """Rename a file in this folder; replaces a file with the new name."""
        with self._named_errors(new):
            os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def sync(self) -> None:
        """Sync the names in the folder to disk."""
        with self._named_errors(""):
            os.fsync(self.descriptor)

    @contextmanager
    def _named_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
                reason = self._reason_of(name)
                number = errno.ELOOP if reason else error.errno
                text = reason or error.strerror
                raise OSError(number, text, str(self.path / name)) from None
            error.filename = str(self.path / name)
            raise

    def _reason_of(self, name: str) -> str:
        with suppress(OSError):
            mode = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                return _LINK
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                return _NO_FILE
        return ""

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def __exit__(self, *_: object) -> None:
        self.close()


def _give(descriptor: int, owner: Owner) -> None:
    if os.fstat(descriptor).st_uid == os.geteuid() == _ROOT:
        with suppress(PermissionError):  # root of a container may have no right to
            os.fchown(descriptor, *owner)


def open_folder(path: Path) -> Folder:
    """Open a folder by a path of the user, which may have links; raises OSError."""
    return Folder(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def make_folder(path: Path, mode: int = 0o750) -> Folder:
    """Open a folder as `open_folder` does; creates it if it is missing. Raises OSError."""
    with suppress(FileExistsError):
        path.mkdir(mode, parents=True)
    return open_folder(path)


def read_file(path: Path) -> bytes:
    """Return the content of a regular file by a path of the user; raises OSError."""
    real = path.resolve()
    with open_folder(real.parent) as folder:
        return folder.read(real.name)


@contextmanager
def replace_file(
    folder: Folder, name: str, temporary: str, mode: int = 0o640
) -> Iterator[IO[bytes]]:
    """Yield the file `temporary`, sync it at the end and rename it to `name`.

    After an exception `name` is as before. Removes first a `temporary` of a killed writer, so only
    one writer at a time may use that name. Raises OSError.
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
        with suppress(OSError):  # it was renamed, or the next writer removes it
            folder.remove(temporary)
    folder.sync()


def write_atomic(path: Path, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file so that it is whole or as before, also after a crash; raises `OperatorError`.

    Text is UTF-8. The file never has more permissions than `mode`.
    """
    with report_errors(path), open_folder(path.parent) as folder:
        _write(folder, path.name, content, mode)


def write_for_owner(folder: Folder, name: str, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file as `write_atomic` does, for the owner of the folder if root writes it."""
    with report_errors(folder.path / name):
        _write(folder, name, content, mode, folder.owner)


@contextmanager
def act_as_owner(path: Path) -> Iterator[None]:
    """Be the owner of a folder within, if root runs this: what is made there is the owner's.

    The whole process is, with its other threads. Raises OSError.
    """
    if os.geteuid() != 0:
        yield
        return
    found, group = path.stat(), os.getegid()
    try:
        with suppress(PermissionError):  # root of a container may have no right to
            os.setegid(found.st_gid)
            os.seteuid(found.st_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


@contextmanager
def report_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Raise `OperatorError` for an OSError: `cannot <verb> <path>`."""
    try:
        yield
    except OSError as error:
        hint = "check the disk and the folder's owner"
        raise OperatorError(f"cannot {verb} {path}: {error.strerror or error}; {hint}") from None


def _write(
    folder: Folder, name: str, content: str | bytes, mode: int, owner: Owner | None = None
) -> None:
    """Write a file by a temporary one with a unique name; raises OSError."""
    _remove_abandoned(folder, name)
    temporary = f"{name}.{secrets.token_hex(4)}{_SUFFIX}"
    with replace_file(folder, name, temporary, mode) as file:
        if owner is not None:
            _give(file.fileno(), owner)
        file.write(content.encode() if isinstance(content, str) else content)


def _remove_abandoned(folder: Folder, name: str) -> None:
    """Remove the temporary files of killed writers of `name`, as far as possible."""
    with suppress(OSError):
        for left in folder.names():
            if left.endswith(_SUFFIX) and left.removesuffix(_SUFFIX).rpartition(".")[0] == name:
                written = os.stat(left, dir_fd=folder.descriptor, follow_symlinks=False).st_mtime
                if abs(time.time() - written) > _ABANDONED:  # noqa: TID251 - of the disk
                    folder.remove(left)


def describe_os_error(error: OSError) -> str:
    """Return the reason alone, without the address or the number that asyncio and Python add."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)
