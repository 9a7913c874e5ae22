"""Keeps freed buffers of some MiB in the process, for the next round or batch.

By default glibc returns them to the kernel each time, and the kernel zeroes the pages when they
are needed again.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # mallopt(3)
_LARGEST = 32 * 1024 * 1024  # the largest value that glibc accepts


def keep_large_buffers() -> None:
    """Configure glibc; without effect on another C library."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_ARENA_MAX, 1)  # one heap: each of many would keep the buffers of a round
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
