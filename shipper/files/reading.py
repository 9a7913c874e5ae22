"""Reads a stretch of an open file and checks in the same breath that it is still the file that was being read.

Blocks, so it runs in a thread; remembers nothing.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from shipper.files.blocks import cut
from shipper.files.limits import Limits
from shipper.files.unpacker import Unpacker

__all__ = ["Reading", "Request", "read"]

_MOST_UNPACKED = 32 * 1024 * 1024
"""Bytes of a compressed file that are passed over in one visit: about a tenth of a second, with bzip2 a whole one."""


@dataclass(frozen=True, slots=True)
class Request:
    """Read at most `limit` bytes from `offset` on; `head` and `tail` are what must still stand at 0 and before it.

    A file that has less than `least` bytes was truncated since it had that many. A compressed file is read by way of
    its `unpacker`, in bytes of its content.
    """

    descriptor: int
    offset: int
    limit: int
    least: int
    head: bytes
    tail: bytes
    unpacker: Unpacker | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: runs of whole lines, and the unfinished line behind them.

    `intact` is False when what had been read before is gone; nothing was read then. `is_complete` is False at the end
    of a compressed file that has no proper end yet; `damage` says why it cannot have one. `is_underway`: what stands
    before the offset is still being unpacked.
    """

    intact: bool
    size: int
    modified: int
    runs: tuple[bytes, ...] = ()
    rest: bytes = b""
    error: str = ""
    is_complete: bool = True
    damage: str = ""
    is_underway: bool = False


def read(requests: Sequence[Request], buffer: bytearray, limits: Limits) -> list[Reading]:
    """Serve the requests in order, in one visit to the thread, by way of `buffer`, which is theirs alone meanwhile.

    A buffer that stays spares the kernel from clearing fresh memory for every read.
    """
    return [
        _read(request, buffer, limits)
        if request.unpacker is None
        else _unpack(request, request.unpacker, buffer, limits)
        for request in requests
    ]


def _read(request: Request, buffer: bytearray, limits: Limits) -> Reading:
    start = len(request.tail)
    try:
        status = os.fstat(request.descriptor)
        size, modified = status.st_size, status.st_mtime_ns
        head = os.pread(request.descriptor, len(request.head), 0)
        if size < max(request.offset, request.least) or head != request.head:
            return Reading(False, size, modified)
        wanted = start + min(request.limit, size - request.offset, len(buffer) - start)
        with memoryview(buffer) as view:
            length = os.preadv(request.descriptor, [view[:wanted]], request.offset - start)
    except OSError as error:
        return Reading(True, request.offset, 0, error=error.strerror or str(error))
    if not buffer.startswith(request.tail):
        return Reading(False, size, modified)
    runs = tuple(cut(buffer, start, length, limits.block_size, limits.max_line))
    rest = bytes(buffer[start + sum(map(len, runs)) : length])
    return Reading(True, size, modified, runs, rest)


def _unpack(request: Request, content: Unpacker, buffer: bytearray, limits: Limits) -> Reading:
    start = len(request.tail)
    wanted = min(request.limit, len(buffer) - start)
    try:
        modified = os.fstat(request.descriptor).st_mtime_ns
        data = content.read(request.offset - start, request.offset + wanted, _MOST_UNPACKED)
        end = request.offset + len(data) - start
        ended = end == content.reached and content.is_at_end()
    except OSError as error:
        return Reading(True, request.offset, 0, error=error.strerror or str(error))
    if content.is_underway:
        size = max(request.least, request.offset + 1)
        return Reading(True, size, modified, is_underway=True)
    if not data.startswith(request.tail):
        return Reading(False, content.reached, modified)
    buffer[: len(data)] = data
    runs = tuple(cut(buffer, start, len(data), limits.block_size, limits.max_line))
    rest = data[start + sum(map(len, runs)) :]
    size = end if ended else max(request.least, end + 1)
    whole = not ended or content.is_complete
    return Reading(
        True, size, modified, runs, rest, is_complete=whole, damage=content.damage if ended else ""
    )
