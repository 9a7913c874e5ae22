"""Keeps freed buffers of some MiB in the process, for the next round or batch.

By default glibc returns them to the kernel each time, and the kernel zeroes the pages when they
are needed again. Measured on two busy cores: to receive 706 MB, a Spark worker takes 1.7 to 2.1 s
of CPU instead of 2.3 to 3.0, with 23,000 page faults instead of 160,000 and more. To ship 339 MB,
`logshipper` takes 1.36 s instead of 1.41, and 10 MiB more memory.
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
