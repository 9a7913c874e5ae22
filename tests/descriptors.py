"""What a process has open, asked of the kernel while the process goes on."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def held_by(pid: int) -> list[str]:
    """Return the target of each descriptor of a process that stays open; raises OSError."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers are enough
        with suppress(FileNotFoundError):
            found.append(str(Path(f"/proc/{pid}/fd/{number}").readlink()))
    return found


def held_here() -> int:
    """Return how many descriptors this process needs, after a collection of garbage."""
    gc.collect()
    return len(held_by(os.getpid()))
