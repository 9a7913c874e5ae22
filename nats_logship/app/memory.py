"""How this process gets its memory: megabytes that come and go with every round or batch stay in the heap.

Left alone, glibc maps and unmaps them each time, and the kernel's zeroing of pages costs a tenth of the CPU and more.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # mallopt(3)
_LARGEST = 32 * 1024 * 1024  # the most that glibc takes


def keep_large_buffers() -> None:
    """Tell the C library; where it is not glibc nothing happens, and that's fine."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    # a heap for each thread that reads would keep a round's memory each; under the interpreter's lock one does as well
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
