"""Reads a stretch of an open file and checks in the same breath that it is still the file that was being read.

Reading blocks, so it is done in a thread, by way of one buffer that stays; nothing else is remembered.
"""

import os
from collections.abc import Sequence

from aiofiles.os import wrap

from shipper.files.blocks import cut
from shipper.files.identity import TAIL_BYTES
from shipper.files.limits import Limits
from shipper.files.reading import Reading, Request
from shipper.files.unpacker import Unpacker

__all__ = ["Reader"]

_MOST_UNPACKED = 32 * 1024 * 1024
"""Bytes of a compressed file that are passed over in one visit: about a tenth of a second, with bzip2 a whole one."""


class Reader:
    """Serves one caller at a time; a request gets `most` bytes at most, or the longest line and its newline.

    A buffer that stays spares the kernel from clearing fresh memory for every read.
    """

    def __init__(self, most: int, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray(max(most, limits.max_line + 1) + TAIL_BYTES)

    async def read(self, requests: Sequence[Request]) -> list[Reading]:
        """Return what was read, in the order of the requests; all in one visit to the thread."""
        readings: list[Reading] = await _serve(requests, self._buffer, self._limits)
        return readings


def _serve_all(requests: Sequence[Request], buffer: bytearray, limits: Limits) -> list[Reading]:
    return [
        _read(request, buffer, limits)
        if request.unpacker is None
        else _unpack(request, request.unpacker, buffer, limits)
        for request in requests
    ]


_serve = wrap(_serve_all)


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
    block_size = limits.block_size if request.is_lone else limits.share
    runs = tuple(cut(buffer, start, length, block_size, limits.max_line))
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
    runs = tuple(cut(buffer, start, len(data), limits.share, limits.max_line))
    rest = data[start + sum(map(len, runs)) :]
    size = end if ended else max(request.least, end + 1)
    whole = not ended or content.is_complete
    return Reading(
        True, size, modified, runs, rest, is_complete=whole, damage=content.damage if ended else ""
    )
