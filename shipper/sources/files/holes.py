"""Finds NUL bytes that are no content: holes of sparse files, and space allocated beforehand.

NULs that were written are content, unless nothing follows them: then lines are yet to be written
over them. Blocks, so it runs in a thread.
"""

import errno
import os
from typing import NamedTuple

from shipper.sources.files.identity import MOST_IN_UNIT

LEAST_HOLE = 4096
"""Bytes: a block of most file systems; fewer NULs are never a hole."""

_MOST_READ = 16 * 1024 * 1024
"""Bytes of written NULs that are searched for content behind them, at a time."""

_STEP = 256 * 1024
_NULS = bytes(LEAST_HOLE)


class Nuls(NamedTuple):
    """NULs in a file up to the position `end`; `is_hole`: some of them were never written."""

    end: int
    is_hole: bool


def find_nuls(buffer: bytearray, start: int, end: int, position: int) -> int:
    """Return where NULs begin in `buffer[start:end]` that may be no content; `end` if none do.

    They are at least as many as a hole has, or reach the end. `position` is that of `buffer[0]` in
    the file; the two bytes before `start` are in the buffer if the file has them.
    """
    begin = buffer.find(_NULS, start, end)
    if begin < 0:
        begin = start + len(bytes(buffer[start:end]).rstrip(b"\0"))
        if end - begin <= MOST_IN_UNIT:
            return end
    # the character before is one of UTF-16, of which half is NUL
    is_half = (position + begin) % 2 and begin > 1 and buffer[begin - 2] == 0
    return begin + 1 if is_half else begin


def measure_nuls(descriptor: int, position: int, size: int) -> Nuls:
    """Return the NULs from a position on, in a file of a size; raises OSError."""
    at, read, is_hole = position, 0, False
    while at < size and read < _MOST_READ:
        begin = _next_data(descriptor, at)
        if begin is None:
            return Nuls(size, True)
        is_hole |= begin > at
        data = os.pread(descriptor, _STEP, begin)
        if content := data.lstrip(b"\0"):
            end = begin + len(data) - len(content)
            # the first character behind is one of UTF-16, of which half is NUL
            is_half = end % 2 and end > position and content[1:2] == b"\0"
            return Nuls(end - 1 if is_half else end, is_hole)
        if not data:
            break
        at, read = begin + len(data), read + len(data)
    # beyond the limit only the end is searched: NULs before content are passed over in steps
    if at < size and os.pread(descriptor, _STEP, max(at, size - _STEP)).strip(b"\0"):
        return Nuls(at, True)
    return Nuls(size, is_hole)


def written_head(descriptor: int, head: bytes, size: int) -> bytes:
    """Return the first bytes of a file without NULs at its end, which may be overwritten.

    Raises OSError.
    """
    written = head.rstrip(b"\0")
    if written == head:
        return head
    return written if measure_nuls(descriptor, len(written), size).end >= size else head


def _next_data(descriptor: int, at: int) -> int | None:
    """Return the first position from `at` on that is in no hole; None if only a hole follows."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        if error.errno in {errno.EINVAL, errno.EOPNOTSUPP}:  # a file system that knows no holes
            return at
        raise
