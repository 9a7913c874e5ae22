"""Reads whole lines from files that it holds open, and checks at the same time that each is still the file that was being read.

Blocks, so it runs in a thread.
"""

import errno
import os
import resource
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shipper.sources.files.decompress import Decompressor
from shipper.sources.files.holes import LEAST_HOLE, find_nuls, measure_nuls, written_head
from shipper.sources.files.identity import (
    HEAD_BYTES,
    TAIL_BYTES,
    ContentHash,
    fingerprint,
    is_inside_line,
)
from shipper.sources.files.paths import Compression
from shipper.sources.files.sampling import close, open_file
from shipper.sources.files.scan import FileKey

if TYPE_CHECKING:
    from shipper.sources.files.file import FollowedFile

_MOST_LEARNT = 16 * 1024 * 1024  # bytes of files whose first bytes are learnt at a time
_NULS_STEP = 256 * 1024  # bytes
_MOST_PASSED = 64 * 1024 * 1024  # bytes of NULs that are decompressed at a time
_MOST_SEARCHED = 64  # blocks at a time, so that an endless line keeps no other file waiting


def end_of_run(data: bytearray, start: int, end: int, most: int, max_line: int) -> int:
    """Return where the last whole line in `data[start:end]` ends, `most` bytes behind `start` at most; else `start`.

    Of a line longer than `max_line` bytes it is a piece of so many bytes.
    """
    if until := data.rfind(b"\n", start, min(end, start + most)) + 1:
        return until
    return start + max_line if end - start > max_line else start


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: a run of whole lines, the unfinished line behind them, and the bytes before them.

    `held` are the bytes of the unfinished line; of an over-long one `rest` is empty.
    `hole` are the NULs behind the run that are left out, `padding` those at the end that may be written over.
    `intact` is False when what had been read before is gone; nothing was read then. `is_complete` is False at the end
    of a compressed file that has no proper end yet; `damage` says why it cannot have one.
    """

    intact: bool
    size: int
    modified: int
    run: bytes = b""
    rest: bytes = b""
    tail: bytes = b""
    held: int = 0
    hole: int = 0
    padding: int = 0
    error: str = ""
    is_complete: bool = True
    damage: str = ""


def most_open_files() -> int:
    """Return how many files may be held open: half of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 16_384 if soft == resource.RLIM_INFINITY else max(16, min(16_384, soft // 2))


class Reader:
    """Reads the `followed` files, of which it holds `limit` open at most and closes the least recently read first.

    An open file can be read to its end whatever becomes of its name, and its inode is not reused. Serves one caller at a time.
    """

    def __init__(self, limit: int, followed: Mapping[FileKey, "FollowedFile"]) -> None:
        self._limit = limit
        self._followed = followed
        self._open: dict[FollowedFile, None] = {}
        self._decompressor: tuple[FollowedFile, Decompressor] | None = None  # one, for its memory

    def resize(self, block_size: int, max_line: int) -> None:
        """Read runs of `block_size` bytes at most, or one line of `max_line` bytes, from now on."""
        self._block_size = block_size
        self._max_line = max_line
        # one that stays spares the kernel from clearing fresh memory for every read
        self._buffer = bytearray(TAIL_BYTES + max(block_size, max_line) + 1)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_space(self) -> bool:
        """Whether no more files are open than may be."""
        return len(self._open) <= self._limit

    def open(self, tailers: Sequence["FollowedFile"]) -> None:
        """Open files, the most recently read from now on; the note of a tailer says why its file is not open after this."""
        for tailer in tailers:
            if tailer.is_open:
                self._open[tailer] = self._open.pop(tailer)
            elif not self._open_one(tailer):
                self.trim(limit=len(self._open) // 2)  # others need some as well
                return
        if len(self._open) > self._limit:
            self.trim(tailers)

    def open_early(self, stored: Callable[[str], int]) -> None:
        """Open what has something to read, is written to, or is not stored as far as it was read, while there is room."""
        wanted = [
            tailer
            for tailer in self._followed.values()
            if not tailer.is_open
            and (tailer.dirty or tailer.entry.is_live or tailer.offset > stored(tailer.file))
        ]
        wanted.sort(key=lambda tailer: not tailer.dirty)
        self.open(wanted[: max(0, self._limit - len(self._open))])

    def trim(self, wanted: Collection["FollowedFile"] = (), limit: int | None = None) -> None:
        """Close what is followed no longer and, above the limit, what is not wanted."""
        gone = {one for one in self._open if self._followed.get(one.entry.key) is not one}
        # never a deleted one: it could not be opened again
        named = [
            tailer
            for tailer in self._open
            if tailer.unseen_since is None and tailer not in gone and tailer not in wanted
        ]
        most = self._limit if limit is None else limit
        for tailer in [*gone, *named[: max(0, len(self._open) - len(gone) - most)]]:
            self._close(tailer)

    def hand_over(self, tailer: "FollowedFile", to: "FollowedFile") -> None:
        """Have an open file followed by another tailer."""
        to.descriptor, tailer.descriptor = tailer.descriptor, -1
        del self._open[tailer]
        self._open[to] = None

    def close(self) -> None:
        """Close all files."""
        for tailer in list(self._open):
            self._close(tailer)

    def _close(self, tailer: "FollowedFile") -> None:
        if self._decompressor is not None and self._decompressor[0] is tailer:
            self._decompressor = None
        del self._open[tailer]
        close(tailer.descriptor)
        tailer.descriptor = -1

    def _open_one(self, tailer: "FollowedFile") -> bool:
        """Open a file, or note why that cannot be done; return False where descriptors ran out."""
        try:
            tailer.descriptor = open_file(tailer.entry)
        except OSError as error:
            tailer.note = f"cannot be opened: {error.strerror}"
            return error.errno not in {errno.EMFILE, errno.ENFILE}
        if tailer.is_open:
            self._open[tailer] = None
        else:
            tailer.note = "was moved since the last look"
        return True

    def read(self, tailer: "FollowedFile", limit: int, *, in_pieces: bool = False) -> Reading:
        """Return about `limit` bytes of an open file; of an over-long line without its end only `in_pieces`.

        With 0 return what a file begins with, to know whether what was read before is still there; nothing of a compressed one.
        """
        try:
            if tailer.entry.compression is None:
                reading = self._read(tailer, limit)
                is_whole = tailer.in_line or in_pieces or not is_inside_line(reading.run)
                if not limit or is_whole or reading.hole:
                    return reading
                return self._when_ended(tailer, reading)
            if limit:
                return self._decompress(tailer, tailer.entry.compression, limit)
            return Reading(True, tailer.size, tailer.entry.modified)
        except OSError as error:
            text = f"cannot be read: {error.strerror or error}"
            return Reading(True, tailer.offset, 0, error=text)

    def has_its_content(self, tailer: "FollowedFile") -> bool | None:
        """Whether the first bytes of an open file are those that were read.

        None while it is written to, and where it was truncated: a copy may have what was read of it.
        """
        try:
            data = os.pread(tailer.descriptor, tailer.content.length, 0)
            now = os.fstat(tailer.descriptor)
        except OSError:
            return None
        is_at_rest = (now.st_size, now.st_mtime_ns) == (tailer.entry.size, tailer.entry.modified)
        if not is_at_rest or now.st_size < tailer.offset:
            return None
        return tailer.content.is_of(data)

    def learn_content(self, tailers: Iterable["FollowedFile"]) -> None:
        """Read the first bytes of open files that were followed from a position on; some MiB at a time."""
        left = _MOST_LEARNT
        for tailer in tailers:
            if left > 0 and tailer.is_open and tailer.offset and not tailer.content.length:
                with suppress(OSError):
                    wanted = min(tailer.offset, ContentHash.MOST)
                    data = os.pread(tailer.descriptor, wanted, 0)
                    tailer.content.add(0, data)
                    left -= len(data)

    def _when_ended(self, tailer: "FollowedFile", reading: Reading) -> Reading:
        """Return the first piece of an over-long line once the line has ended; nothing of it before."""
        if reading.padding:  # and so no newline before it
            return replace(reading, run=b"", rest=b"", held=len(reading.run) + reading.held)
        if self._has_end(tailer):
            return reading
        return replace(reading, run=b"", rest=b"", held=tailer.searched - tailer.offset)

    def _read(self, tailer: "FollowedFile", limit: int) -> Reading:
        descriptor = tailer.descriptor
        status = os.fstat(descriptor)
        start = tailer.identity.tail_length
        begin = tailer.offset - start

        def fill(most: int) -> int:
            wanted = max(0, min(start + most, status.st_size - begin))
            with memoryview(self._buffer) as view:
                return os.preadv(descriptor, [view[:wanted]], begin)

        end = self._fill(fill, start, limit)
        nuls, padding, hole = self._nuls(descriptor, begin, (start, end), status.st_size)
        # a file that begins as it did after the reading was not truncated before or during it
        head = os.pread(descriptor, len(tailer.beginning) if limit else HEAD_BYTES, 0)
        after = os.fstat(descriptor)
        size, modified = after.st_size, after.st_mtime_ns
        intact = fingerprint(self._buffer[:start]) == tailer.identity.tail_hash
        intact &= end >= start and min(size, status.st_size) >= max(tailer.size, begin + end)
        if not (intact and head.startswith(tailer.beginning)):
            head = b"" if limit else written_head(descriptor, head, size)
            return Reading(False, size, modified, head)
        if not limit:
            return Reading(True, size, modified, written_head(descriptor, head, size))
        if end == start and status.st_size > tailer.offset:
            return Reading(True, size, modified, error="has fewer bytes than its size says")
        run, rest, tail, held = self._split(start, nuls)
        if not (hole and start + len(run) + held == nuls and b"\n" not in run):
            return Reading(True, size, modified, run, rest, tail, held, padding=padding)
        return Reading(True, size, modified, run + rest, b"", tail, hole=hole)

    def _nuls(
        self, descriptor: int, begin: int, within: tuple[int, int], size: int
    ) -> tuple[int, int, int]:
        """Return where NULs begin in a part of the buffer that are no content, and how many are the padding, or the hole.

        `begin` is the position of the buffer in the file.
        """
        start, end = within
        if self._buffer.find(0, start, end) < 0:
            return end, 0, 0
        first = find_nuls(self._buffer, start, end, begin)
        if first == end:
            return end, 0, 0
        nuls = measure_nuls(descriptor, begin + first, size)
        length = nuls.end - begin - first
        if nuls.end == size:
            return first, length, 0
        return (first, 0, length) if nuls.is_hole or not length else (end, 0, 0)

    def _has_end(self, tailer: "FollowedFile") -> bool:
        """Whether the end of the over-long line at the offset is found; goes on where the search before has come to."""
        tailer.searched = max(tailer.searched, tailer.offset + self._max_line)
        for _ in range(_MOST_SEARCHED):
            data = os.pread(tailer.descriptor, self._block_size, tailer.searched)
            if not data or b"\n" in data:
                return bool(data)
            tailer.searched += len(data)
        return False

    def _decompress(self, tailer: "FollowedFile", compression: Compression, limit: int) -> Reading:
        if self._decompressor is None or self._decompressor[0] is not tailer:
            self._decompressor = tailer, Decompressor(tailer.descriptor, compression)
        content = self._decompressor[1]
        start = tailer.identity.tail_length
        begin = tailer.offset - start
        modified = os.fstat(tailer.descriptor).st_mtime_ns

        def fill(most: int) -> int:
            data = content.read(begin, tailer.offset + most)
            self._buffer[: len(data)] = data
            return len(data)

        end = self._fill(fill, start, limit)
        ended = begin + end == content.reached and content.is_at_end()
        if fingerprint(self._buffer[: min(start, end)]) != tailer.identity.tail_hash:
            return Reading(False, content.reached, modified)
        nuls = find_nuls(self._buffer, start, end, begin)
        if any(self._buffer[nuls:end]):
            nuls = end  # lines follow
        run, rest, tail, held = self._split(start, nuls)
        reached, size = begin + end, max(tailer.size, begin + end + 1)
        if not ended and end - nuls >= LEAST_HOLE and start + len(run) + held == nuls:
            reached, ended = _pass_nuls(content, reached)
            if not ended and b"\n" not in run:
                hole = reached - begin - nuls
                return Reading(True, size, modified, run + rest, b"", tail, hole=hole)
        if not ended:
            return Reading(True, size, modified, *self._split(start, end))
        padding, is_whole = reached - begin - nuls, content.is_complete
        reading = Reading(True, reached, modified, run, rest, tail, held, padding=padding)
        return replace(reading, is_complete=is_whole, damage=content.damage)

    def _fill(self, fill: Callable[[int], int], start: int, limit: int) -> int:
        """Fill the buffer; up to the longest line where none ends within the limit behind `start`."""
        for most in (min(limit, self._block_size), self._max_line + 1):
            end = fill(most)
            if not most or end - start < most or self._buffer.find(b"\n", start, end) >= 0:
                break
        return end

    def _split(self, start: int, end: int) -> tuple[bytes, bytes, bytes, int]:
        """Return the whole lines, what is behind them and before them in the buffer, and the length of the unfinished line."""
        most = max(self._block_size, self._max_line)
        until = end_of_run(self._buffer, start, end, most, self._max_line)
        with memoryview(self._buffer) as view:
            run, rest, tail = bytes(view[start:until]), bytes(view[until:end]), bytes(view[:start])
        # a rest of more than an unfinished line is read again
        rest = b"" if b"\n" in rest or len(rest) > self._max_line else rest
        return run, rest, tail, len(rest)


def _pass_nuls(content: Decompressor, at: int) -> tuple[int, bool]:
    """Return where NULs from a position on end, or 64 MiB behind it, and whether the content ends there."""
    most = at + _MOST_PASSED
    while at < most:
        begin = max(0, at - TAIL_BYTES)  # the bytes before an offset are asked for again
        data = content.read(begin, at + _NULS_STEP)[at - begin :]
        if written := data.lstrip(b"\0"):
            return at + len(data) - len(written), False
        at += len(data)
        if len(data) < _NULS_STEP:
            return at, content.is_at_end()
    return at, False
