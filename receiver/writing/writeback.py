"""System calls that make syncing cheap: writing that begins early, and one sync for many.

A beginning promises nothing: what is on disk is told by fdatasync alone, errors too. Many files whose bytes are on their way already
share one commit of the file system's journal; synced one after the other from scratch each waits for one of its own.
"""

import ctypes
import errno
import os
import sys

__all__ = ["begin", "sync_all", "write_rest"]

_START = 2  # SYNC_FILE_RANGE_WRITE; with the other flags it would take notice of errors in fdatasync's stead
_TO_THE_END = ctypes.c_int64(0)

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_sync_file_range = getattr(_libc, "sync_file_range", None)
_syncfs = getattr(_libc, "syncfs", None)


def begin(descriptor: int) -> None:
    """Start writing what is not on disk yet, and return; does nothing where the system has no such call."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, _TO_THE_END, _TO_THE_END, _START)


def sync_all(descriptor: int) -> bool:
    """Bring the whole file system that a descriptor is in to disk; False where that cannot be done. Raises OSError."""
    if _syncfs is None:
        return False
    if _syncfs(descriptor) == 0:
        return True
    if (code := ctypes.get_errno()) in {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}:
        return False
    raise OSError(code, os.strerror(code))


def write_rest(descriptor: int, rest: bytes) -> None:
    """Write what one call did not take; raises OSError."""
    view = memoryview(rest)
    while view:
        view = view[os.write(descriptor, view) :]
