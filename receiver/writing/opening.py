"""Files of ours, opened as what they are: a symbolic link, or anything else that is no regular file, is refused by name."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

__all__ = ["REFUSED", "descriptor_of", "is_regular", "opened", "read"]

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
