"""Has the kernel begin to write a file's bytes to disk, so that a sync that comes later finds little left to wait for.

Promises nothing: what is on disk is told by fdatasync alone, errors too. Many files whose bytes are on their way already
share one commit of the file system's journal; synced one after the other from scratch each waits for one of its own.
"""

import ctypes
import os
import sys

__all__ = ["begin", "write_rest"]

_START = 2  # SYNC_FILE_RANGE_WRITE; with the other flags it would take notice of errors in fdatasync's stead
_TO_THE_END = ctypes.c_int64(0)

_sync_file_range = (
    getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
)


def begin(descriptor: int) -> None:
    """Start writing what is not on disk yet, and return; does nothing where the system has no such call."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, _TO_THE_END, _TO_THE_END, _START)


def write_rest(descriptor: int, rest: bytes) -> None:
    """Write what one call did not take; raises OSError."""
    view = memoryview(rest)
    while view:
        view = view[os.write(descriptor, view) :]
