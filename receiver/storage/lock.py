"""Locks that one process at a time holds: of a partition, whose files one task writes, and of retention."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from receiver.storage.opening import descriptor_of

__all__ = ["Locked", "exclusive_lock"]

_LOOK_AGAIN = 0.02  # seconds


class Locked(Exception):
    """Another process holds the lock and did not let go in time."""


@contextmanager
def exclusive_lock(
    path: Path, patience: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Hold the lock; the kernel lets go of it when its holder dies, however it dies.

    A task that lost its driver may hold it until its batch is written: hence the patience, in seconds. Raises
    `Locked`, OSError.
    """
    descriptor = descriptor_of(path, os.O_RDWR | os.O_CREAT)
    try:
        give_up = clock() + patience
        while not _try(descriptor):
            if clock() > give_up:
                raise Locked(f"another process has held {path} for {patience:g} s")
            time.sleep(_LOOK_AGAIN)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
