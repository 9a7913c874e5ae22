"""Looks backwards from the end of a file for where its last line ends. Blocks; keeps nothing open."""

import os

from shipper.files.identity import TAIL_BYTES
from shipper.files.lastline import LastLine

__all__ = ["last_line"]

_STRETCH = 64 * 1024
_FARTHEST = 16 * 1024 * 1024
"""How far back a newline is looked for: a line that long is shipped in pieces, so that its rest may be one of them."""


def last_line(descriptor: int, size: int) -> LastLine:
    """Return where the last whole line of the first `size` bytes ends; raises OSError."""
    offset = _behind_last_newline(descriptor, size)
    start = max(0, offset - TAIL_BYTES)
    return LastLine(offset, os.pread(descriptor, offset - start, start))


def _behind_last_newline(descriptor: int, size: int) -> int:
    end, farthest = size, max(0, size - _FARTHEST)
    while end > farthest:
        start = max(farthest, end - _STRETCH)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return size if farthest else 0
