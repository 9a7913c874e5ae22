"""Reads runs of whole lines from open files, and checks at the same time that each is still the file that was being read.

Reading blocks, so it is done in a thread, but for the few bytes of a growing file that the kernel still holds. Looks at
no line: finds the last newline of a run.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiofiles.os import wrap

from broker.wire.message import Section
from shipper.tail.decompress import Unpacker
from shipper.tail.identity import TAIL_BYTES

if TYPE_CHECKING:
    from shipper.tail.decompress import Unpacker

__all__ = ["LEAST_SHARE", "Block", "Limits", "Reader", "Reading", "Request", "count_lines", "cut"]


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole lines of one file.

    `read_at` is when it was read, in nanoseconds since the epoch. `continues` says that it begins inside a line, whose
    beginning is in the block before.
    """

    section: Section
    lines: bytes
    read_at: int
    continues: bool = False


LEAST_SHARE = 256 * 1024
"""Bytes that each of many files is given at a time: few enough to be fair, enough to be worth the visit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`block_size` and `max_line` in bytes, `grace` in nanoseconds, `open_files` a number of descriptors.

    `hold` is how long, in nanoseconds, a deleted file is kept open that is not read to its end.
    """

    block_size: int
    max_line: int
    grace: int
    open_files: int
    hold: int = 6 * 3600 * 1_000_000_000

    @property
    def share(self) -> int:
        """Bytes that a file is given at least at its turn."""
        return min(LEAST_SHARE, self.block_size)


_SAMPLE, _MANY = 1024, 32


def cut(data: bytearray, start: int, end: int, block_size: int, max_line: int) -> list[bytes]:
    """Return the runs that `data[start:end]` begins with; what is left over is an unfinished line, to be read again.

    Each ends in a newline and has at most `block_size` bytes, or is one line of at most `max_line` bytes, or is a
    piece of exactly `max_line` bytes of a longer line, of which at least a byte is left.
    """
    runs = []
    with memoryview(data) as view:
        while (until := _end_of_run(data, start, end, block_size, max_line)) > start:
            runs.append(bytes(view[start:until]))
            start = until
    return runs


def count_lines(run: bytes) -> int:
    """Return the number of newlines.

    Taking them out searches with memchr(3), which skips over a line at a time: a quarter of the time of `bytes.count`
    for lines of 200 bytes, and several times as much for very short ones.
    """
    if run.count(b"\n", 0, _SAMPLE) > _MANY:
        return run.count(b"\n")
    return len(run) - len(run.replace(b"\n", b""))


def _end_of_run(data: bytearray, start: int, end: int, block_size: int, max_line: int) -> int:
    if until := data.rfind(b"\n", start, min(end, start + block_size)) + 1:
        return until
    if until := data.find(b"\n", start + block_size, min(end, start + max_line)) + 1:
        return until
    # a piece is never the last of its line: that one gets its newline, should it come without
    return start + max_line if end - start > max_line else start


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
    unpacker: "Unpacker | None" = None


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


_MOST_UNPACKED = 32 * 1024 * 1024
"""Bytes of a compressed file that are passed over in one visit: about a tenth of a second, with bzip2 a whole one."""

_AT_ONCE, _MOST_AT_ONCE = 32 * 1024, 32
"""Bytes of a file, and files, that are read at once: together a fifth of a millisecond."""


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

    def read_at_once(self, requests: Sequence[Request]) -> list[Reading] | None:
        """Return what `read` would, without waiting for any disk; None when that is not to be had.

        So it is when there are many bytes, when the kernel does not hold them in memory, or when anything is not as it
        should be. The files must be on a file system of this machine: another's may be slow to tell a size.
        """
        if len(requests) > _MOST_AT_ONCE or any(request.unpacker for request in requests):
            return None
        try:
            readings = [_pick_up(request, self._buffer, self._limits) for request in requests]
        except OSError:  # also from a file system that cannot tell what it holds (preadv2(2))
            return None
        return readings if all(reading.intact for reading in readings) else None


def _serve_all(requests: Sequence[Request], buffer: bytearray, limits: Limits) -> list[Reading]:
    return [
        _read(request, buffer, limits)
        if request.unpacker is None
        else _unpack(request, request.unpacker, buffer, limits)
        for request in requests
    ]


_serve = wrap(_serve_all)


def _pick_up(request: Request, buffer: bytearray, limits: Limits) -> Reading:
    status = os.fstat(request.descriptor)
    if status.st_size - request.offset > _AT_ONCE:
        raise BlockingIOError
    return _fetch(request, status, buffer, limits, os.RWF_NOWAIT)


def _read(request: Request, buffer: bytearray, limits: Limits) -> Reading:
    try:
        return _fetch(request, os.fstat(request.descriptor), buffer, limits)
    except OSError as error:
        return Reading(True, request.offset, 0, error=error.strerror or str(error))


def _fetch(
    request: Request, before: os.stat_result, buffer: bytearray, limits: Limits, flags: int = 0
) -> Reading:
    start = len(request.tail)
    least = max(request.offset, request.least)
    if before.st_size < least:
        return Reading(False, before.st_size, before.st_mtime_ns)
    wanted = start + min(request.limit, before.st_size - request.offset, len(buffer) - start)
    with memoryview(buffer) as view:
        length = os.preadv(request.descriptor, [view[:wanted]], request.offset - start, flags)
    if flags and length < wanted:
        raise BlockingIOError
    # what begins as it did after the reading was not truncated before or during it
    head = bytearray(len(request.head))
    told = os.preadv(request.descriptor, [head], 0, flags) if head else 0
    after = os.fstat(request.descriptor)
    size, modified = after.st_size, after.st_mtime_ns
    same = length >= start and buffer.startswith(request.tail) and head[:told] == request.head
    if size < max(least, request.offset - start + length) or not same:
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
