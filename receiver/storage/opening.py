"""Files of ours, opened as what they are: a symbolic link, or anything else that is no regular file, is refused by name."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from receiver.storage.writeback import is_local

__all__ = [
    "REFUSED",
    "descriptor_of",
    "is_regular",
    "named",
    "opened",
    "read",
    "sync_folder",
    "uri_of",
]

REFUSED = "is a symbolic link or no regular file; move it away"
_FLAGS = {
    "rb": os.O_RDONLY,
    "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "a+b": os.O_RDWR | os.O_APPEND | os.O_CREAT,
}


def descriptor_of(path: Path, flags: int, mode: int = 0o640) -> int:
    """Open a regular file that is no link, made with a mode where the flags say so; raises OSError."""
    wanted = flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, wanted, mode)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise OSError(error.errno, REFUSED, str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, REFUSED, str(path))
    return descriptor


def opened(path: Path, mode: str) -> IO[bytes]:
    """Open a regular file that is no link, in the mode `rb`, `ab` or `a+b`; raises OSError."""
    return os.fdopen(descriptor_of(path, _FLAGS[mode]), mode)


def read(path: Path) -> bytes:
    """Return what a regular file that is no link holds; raises OSError."""
    with opened(path, "rb") as file:
        return file.read()


def is_regular(path: Path) -> bool:
    """Say whether a regular file is there, and no link to one; raises OSError."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk: names made, renamed or removed in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Have an OSError from inside say which file it is about: those of writing and syncing do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def uri_of(path: Path) -> str:
    """Return how SQLite opens a database; one that nobody has open, in a folder that is not ours to write, as it stands there."""
    is_closed = is_local(path.parent) and not os.path.lexists(f"{path}-wal")
    is_ours = os.access(path.parent, os.W_OK, effective_ids=True)
    mode = "immutable=1" if is_closed and not is_ours else "mode=rwc"
    return f"{path.absolute().as_uri()}?{mode}"
