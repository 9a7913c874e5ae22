"""Locks on files and folders (flock(2)).

The kernel releases a lock when its descriptor is closed, in this process and in each child that
inherited the descriptor: also when they die, however they die.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from math import inf
from pathlib import Path

from nats_logship.app.exits import OperatorError
from nats_logship.app.files import open_folder

_TRY_AGAIN = 0.02  # seconds


class Lock(IntEnum):
    """A shared lock excludes exclusive locks, an exclusive lock all others."""

    EXCLUSIVE = fcntl.LOCK_EX
    SHARED = fcntl.LOCK_SH


class Locked(OperatorError):
    """Another process holds the lock and did not release it in time."""


def try_lock(descriptor: int, kind: Lock = Lock.EXCLUSIVE) -> bool:
    """Lock an open file or folder; return False if another process excludes it. Raises OSError."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(
    descriptor: int, held: str = "", patience: float = inf, kind: Lock = Lock.EXCLUSIVE
) -> None:
    """Lock an open file or folder within `patience` seconds.

    Raises OSError, and `Locked` with the text `held`.
    """
    give_up = time.monotonic() + patience
    while not try_lock(descriptor, kind):
        if time.monotonic() >= give_up:
            raise Locked(held)
        time.sleep(_TRY_AGAIN)


@contextmanager
def exclusive_lock(path: Path, patience: float, held: str = "") -> Iterator[int]:
    """Create a file if it is missing, hold its exclusive lock, and yield its descriptor.

    Raises as `lock` does; by default the text has the path and the time.
    """
    with open_folder(path.parent) as folder:
        descriptor = folder.open(path.name, os.O_RDWR | os.O_CREAT)
    try:
        lock(descriptor, held or f"another process has held {path} for {patience:g} s", patience)
        yield descriptor
    finally:
        os.close(descriptor)
