"""Keeps the buffers of rounds, which have some megabytes, in the heap of glibc.

Otherwise glibc maps and unmaps the memory for each round, and the kernel fills it with zeros:
shipping 400 MB takes 1.04 s of CPU instead of 0.96 s. The agent has some 10 MiB more.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # mallopt(3)
_MAX_THRESHOLD = 32 * 1024 * 1024  # bytes; the maximum of glibc


def keep_large_buffers() -> None:
    """Set the thresholds of glibc; without glibc do nothing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_ARENA_MAX, 1)  # one heap: each of many would keep the buffers of a round
    mallopt(_MMAP_THRESHOLD, _MAX_THRESHOLD)
    mallopt(_TRIM_THRESHOLD, 2 * _MAX_THRESHOLD)
