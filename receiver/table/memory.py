"""Have a worker give back the memory of its last task: it lives on, mostly idle."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_and_release(work: Callable[[Item], Result], item: Item) -> Result:
    """Return what `work` returns; what its buffers took is free for other processes then."""
    try:
        return work(item)
    finally:
        _release()


def _release() -> None:
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)
