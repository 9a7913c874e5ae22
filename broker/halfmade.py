"""A file that is half-made, beside the one whose place it is to take: as long as its writer is at it, it holds its lock.

Where that lock is free the writer has died, and the file may go; what somebody is at, on another machine too, stays.
"""

import fcntl
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["clear_away", "half_made"]


@contextmanager
def half_made(path: Path) -> Iterator[BinaryIO]:
    """Make a file of a name that nobody else has, for who writes it and then renames it, or links it, to `path`.

    Those that dead writers of `path` have left are removed first, and this one when it was not renamed. Raises OSError.
    """
    clear_away(path)
    with _made(path) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def clear_away(path: Path) -> None:
    """Remove what dead writers of `path` have left half-made; what cannot be removed is left for the next time."""
    with suppress(OSError):
        for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
            with suppress(OSError):
                _remove(left)


def _made(path: Path) -> BinaryIO:
    while True:
        file = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp").open("x+b")
        if _is_ours(file):
            return file
        file.close()


def _is_ours(file: BinaryIO) -> bool:
    """Take the lock; False where somebody who clears away was quicker, between our making the file and our locking it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # that's fine: where there are no locks nobody else gets one, and nothing is cleared away
    return os.fstat(file.fileno()).st_nlink > 0


def _remove(left: Path) -> None:
    # to be written, since a network file system gives no other lock of one's own
    opened = os.open(left, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left.unlink()
    finally:
        os.close(opened)
