"""What a process has open, asked of the kernel while the process goes on."""

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["held_by"]


def held_by(pid: int) -> list[str]:
    """Return what each descriptor of a process leads to, but for those that are closed meanwhile; raises OSError."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers are enough
        with suppress(FileNotFoundError):
            found.append(str(Path(f"/proc/{pid}/fd/{number}").readlink()))
    return found
