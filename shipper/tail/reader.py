"""Reads whole lines from open files, and checks at the same time that each is still the file that was being read.

Reading blocks, so it is done in a thread, but for a few bytes that the kernel holds in memory.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from broker.wire.message import Identity, Section
from shipper.tail.decompress import Decompressor
from shipper.tail.identity import TAIL_BYTES, fingerprint

__all__ = ["Block", "Reader", "Reading", "Request", "count_lines", "end_of_run"]


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of one file, as they were read at a time.

    `read_at` is in nanoseconds since the epoch. `continues` says that the block begins inside an over-long line, whose
    beginning is in the block before.
    """

    section: Section
    lines: bytes
    read_at: int
    continues: bool = False


_SAMPLE, _MANY = 1024, 32


def count_lines(run: bytes) -> int:
    """Return the number of newlines.

    Taking them out searches with memchr(3), which skips over a line at a time: a third of the time of `bytes.count`
    for lines of 100 bytes, and several times as much for very short ones.
    """
    if run.count(b"\n", 0, _SAMPLE) > _MANY:
        return run.count(b"\n")
    return len(run) - len(run.replace(b"\n", b""))


def end_of_run(data: bytearray, start: int, end: int, most: int, max_line: int) -> int:
    """Return where the last whole line in `data[start:end]` ends, `most` bytes behind `start` at most; else `start`.

    Of a line longer than `max_line` bytes it is a piece of so many bytes. A piece is never the last of its line, so that the
    last one gets its newline, should the file end without.
    """
    if until := data.rfind(b"\n", start, min(end, start + most)) + 1:
        return until
    return start + max_line if end - start > max_line else start


@dataclass(frozen=True, slots=True)
class Request:
    """Read about `limit` bytes from `offset` on; the file must still begin with `head` and be the `known` one at the offset.

    A file of less than `least` bytes was truncated since it had that many. A compressed file is read by way of its
    `decompressor`; all positions are those of its content.
    """

    descriptor: int
    offset: int
    limit: int
    least: int
    head: bytes
    known: Identity
    decompressor: Decompressor | None = None

    def is_intact(self, tail: bytes | bytearray) -> bool:
        """Whether the bytes before the offset are those that were read there."""
        return fingerprint(tail) == self.known.tail_hash


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: a run of whole lines, the unfinished line behind them, and the bytes before them.

    `intact` is False when what had been read before is gone; nothing was read then. `is_complete` is False at the end
    of a compressed file that has no proper end yet; `damage` says why it cannot have one. `is_underway`: what comes
    before the offset is still being decompressed.
    """

    intact: bool
    size: int
    modified: int
    run: bytes = b""
    rest: bytes = b""
    tail: bytes = b""
    error: str = ""
    is_complete: bool = True
    damage: str = ""
    is_underway: bool = False


_AT_ONCE = 32 * 1024
"""Bytes of a file that are read without a thread: a few microseconds, where waking a thread and being woken takes a hundred."""

_MOST_DECOMPRESSED = 32 * 1024 * 1024
"""Bytes of a compressed file that are skipped in one visit: about a tenth of a second, with bzip2 a whole one."""


class Reader:
    """Serves one caller at a time; a run has `block_size` bytes at most, or one line of `max_line` bytes.

    A buffer that stays spares the kernel from clearing fresh memory for every read.
    """

    def __init__(self, block_size: int, max_line: int) -> None:
        self._block_size = block_size
        self._max_line = max_line
        self._most = max(block_size, max_line)
        self._buffer = bytearray(TAIL_BYTES + self._most + 1)

    async def read(self, requests: Sequence[Request], budget: int) -> list[Reading]:
        """Return what was read, in the order of the requests, which ends once `budget` bytes were read."""
        try:
            return self._read_all(requests, budget, os.RWF_NOWAIT)
        except OSError:
            return await asyncio.to_thread(self._read_all, requests, budget, 0)

    def _read_all(self, requests: Sequence[Request], budget: int, flags: int) -> list[Reading]:
        """Read in a thread or, with RWF_NOWAIT, raise `OSError` where that would take long."""
        readings: list[Reading] = []
        for request in requests:
            if budget <= 0:
                break
            readings.append(reading := self._read_one(request, flags))
            budget -= len(reading.run) + len(reading.rest)
        return readings

    def _read_one(self, request: Request, flags: int) -> Reading:
        try:
            if flags:
                _require_in_memory(request)
            if request.decompressor is not None:
                return self._decompress(request, request.decompressor)
            return self._read(request, flags)
        except OSError as error:
            if flags:
                raise
            return Reading(True, request.offset, 0, error=error.strerror or str(error))

    def _read(self, request: Request, flags: int) -> Reading:
        status = os.fstat(request.descriptor)
        if status.st_size < request.least:
            return Reading(False, status.st_size, status.st_mtime_ns)
        end = self._fill(request, status.st_size, flags)
        # a file that begins as it did after the reading was not truncated before or during it
        head = os.pread(request.descriptor, len(request.head), 0)
        after = os.fstat(request.descriptor)
        size, modified = after.st_size, after.st_mtime_ns
        start = request.known.tail_length
        same = request.is_intact(self._buffer[:start]) and head == request.head
        if end < start or size < max(request.least, request.offset - start + end) or not same:
            return Reading(False, size, modified)
        if request.limit and end == start and status.st_size > request.offset:
            return Reading(True, size, modified, error="has fewer bytes than its size says")
        return Reading(True, size, modified, *self._split(start, end))

    def _fill(self, request: Request, size: int, flags: int) -> int:
        """Read the tail and what comes behind it into the buffer; up to the longest line where none ends within the limit."""
        start = request.known.tail_length
        for limit in (min(request.limit, self._block_size), self._max_line + 1):
            wanted = start + min(limit, size - request.offset)
            with memoryview(self._buffer) as view:
                end = os.preadv(request.descriptor, [view[:wanted]], request.offset - start, flags)
            if flags and end < wanted:
                raise BlockingIOError
            if not limit or end - start < limit or self._buffer.find(b"\n", start, end) >= 0:
                break
        return end

    def _decompress(self, request: Request, content: Decompressor) -> Reading:
        start = request.known.tail_length
        begin = request.offset - start
        modified = os.fstat(request.descriptor).st_mtime_ns
        for limit in (min(request.limit, self._block_size), self._max_line + 1):
            data = content.read(begin, request.offset + limit, _MOST_DECOMPRESSED)
            if len(data) - start < limit or data.find(b"\n", start) >= 0:
                break
        end = begin + len(data)
        ended = end == content.reached and content.is_at_end()
        if content.is_underway:
            size = max(request.least, request.offset + 1)
            return Reading(True, size, modified, is_underway=True)
        if not request.is_intact(data[:start]):
            return Reading(False, content.reached, modified)
        self._buffer[: len(data)] = data
        size = end if ended else max(request.least, end + 1)
        is_complete = not ended or content.is_complete
        damage = content.damage if ended else ""
        split = self._split(start, len(data))
        return Reading(True, size, modified, *split, is_complete=is_complete, damage=damage)

    def _split(self, start: int, end: int) -> tuple[bytes, bytes, bytes]:
        """Return the whole lines, what is behind them, and what is before them in the buffer."""
        until = end_of_run(self._buffer, start, end, self._most, self._max_line)
        with memoryview(self._buffer) as view:
            run, rest, tail = bytes(view[start:until]), bytes(view[until:end]), bytes(view[:start])
        # a rest of more than an unfinished line is read again
        return run, b"" if b"\n" in rest or len(rest) > self._max_line else rest, tail


def _require_in_memory(request: Request) -> None:
    """Raise `OSError` where a file has many bytes to read, is compressed, or its first byte is not in memory.

    A file system of another machine, which may be slow to tell even a size, does not know RWF_NOWAIT (preadv2(2)).
    """
    if request.decompressor is not None:
        raise BlockingIOError
    os.preadv(request.descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    if os.fstat(request.descriptor).st_size - request.offset > _AT_ONCE:
        raise BlockingIOError
