"""What was copied from an input: to its readers one file, on disk segments of 16 MiB.

A segment is appended to by one thread while another one reads, and is removed as a whole.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.cutter import Cutter
from shipper.sources.files.identity import TAIL_BYTES
from shipper.sources.files.progress import Progress, Reading

SEGMENT = 16 * 1024 * 1024
"""Bytes of a segment, but for the last newline of a file."""
_LONGEST = 64 * 1024 * 1024  # bytes of a record that other sources wait for


@dataclass(slots=True)
class Segment:
    """A file on disk, locked through its descriptor, with the bytes from position `start` on."""

    name: str
    descriptor: int
    start: int
    size: int

    @property
    def end(self) -> int:
        """The position behind its last byte."""
        return self.start + self.size

    def read(self, size: int, at: int) -> bytes:
        """Return so many bytes from a place in it on; raises an OSError with its name."""
        try:
            return os.pread(self.descriptor, size, at)
        except OSError as error:
            error.filename = self.name
            raise


@dataclass(slots=True)
class SpooledFile:
    """A file id and its segments, in order; a closed one does not grow any more.

    `grown_at` is when it grew last, in nanoseconds of the monotonic clock. `holds_lines`: whole
    lines wait for the end of their record. `in_pieces` counts the bytes of the present record that
    were read in pieces. `problem` says why the file could not be read, and is tried again at
    `retry_at`, in seconds of the monotonic clock; empty if it can be read.
    """

    number: int
    progress: Progress
    segments: list[Segment]
    is_closed: bool = False
    grown_at: int = field(default_factory=time.monotonic_ns)
    holds_lines: bool = False
    in_pieces: int = 0
    problem: str = ""
    retry_at: float = 0.0

    @property
    def file(self) -> str:
        """Its file id."""
        return self.progress.file

    @property
    def end(self) -> int:
        """The position behind its last byte."""
        return self.segments[-1].end

    @property
    def unread(self) -> int:
        """How many bytes were not read."""
        return max(0, self.end - max(self.progress.offset, self.segments[0].start))

    @property
    def is_inside_line(self) -> bool:
        """Whether a piece of the present record was read, and its end is waited for.

        It may have none, as the output of `cat /dev/zero`: after 64 MiB other lines may come
        between its pieces.
        """
        return self.progress.in_line and self.in_pieces < _LONGEST

    def behind(self, stored: int) -> int:
        """Return how many bytes are behind a position."""
        return max(0, self.end - max(stored, self.segments[0].start))

    # the thread that copies

    def append(self, move: Callable[[int, int, int], int | None]) -> int | None:
        """Have bytes moved to the end; return what `move` does, see `Input.move`."""
        last = self.segments[-1]
        if moved := move(last.descriptor, last.size, SEGMENT - last.size):
            self.grown_at = time.monotonic_ns()  # before the size, which is read first
            last.size += moved
        return moved

    def finish(self) -> None:
        """Add the newline that the last line lacks, if it does; raises OSError."""
        last = self.segments[-1]
        # the line may end with the segment before, of which the other thread removes none now
        filled = next((one for one in reversed(tuple(self.segments)) if one.size), None)
        if filled and filled.read(1, filled.size - 1) != b"\n":
            last.size += os.pwrite(last.descriptor, b"\n", last.size)

    # the thread that reads

    def rewind(self, cursor: Cursor) -> None:
        """Read on from the cursor, perhaps inside a record."""
        self.progress = Progress.begin(cursor, 0, b"")
        self.holds_lines = False
        self.in_pieces = 0

    def remove(self, stored: int, remove: Callable[[Segment], None]) -> bool:
        """Remove segments below a position; return whether none is left."""
        is_done = self.is_closed and stored >= self.end
        # the next reading begins with the bytes before it
        least = self.end if is_done else min(stored, self.end) - TAIL_BYTES
        gone = [one for one in self.segments if one.end <= least]
        for one in gone:
            remove(one)
        if not is_done:
            del self.segments[: len(gone)]
        return is_done

    def read(self, cutter: Cutter, most: int, timeout: int, now: int) -> Block | None:
        """Return about `most` bytes of whole records, or a piece of an over-long one; None if none.

        The first piece of such a record waits until that has ended, or has 16 MiB. A record has
        also ended if the file is closed, or its lines were not followed for the timeout.
        Raises OSError.
        """
        is_closed = self.is_closed  # in this order: another thread writes them
        end, grown_at = self.end, self.grown_at
        is_quiet = time.monotonic_ns() >= grown_at + timeout
        reading = self._cut(cutter, most, end)
        is_piece = reading.goes_on or not reading.run.endswith(b"\n")
        if reading.run and is_piece and not (is_closed or cutter.is_begun(reading)):
            has_end, lines = self._search_end(cutter, reading)
            self.holds_lines = not has_end and lines > 0
            if not has_end and not (self.holds_lines and is_quiet):
                return None
        self.progress, blocks = self.progress.accept(reading, now)
        if not blocks and (is_closed or is_quiet):
            blocks = self._take_rest(reading, is_closed, now)
        self.holds_lines = not blocks and reading.holds_lines
        if not blocks:
            return None
        self.in_pieces = self.in_pieces + len(blocks[0].lines) if blocks[0].goes_on else 0
        return blocks[0]

    def skip_hole(self) -> None:
        """Go on at the next segment if the rest of one was lost with the machine: that is a gap."""
        offset = self.progress.offset
        start = next((one.start for one in self.segments if one.end > offset), offset)
        if start > offset:
            self.progress = self.progress._replace(offset=start, in_line=False, searched=None)

    def _cut(self, cutter: Cutter, most: int, end: int) -> Reading:
        offset = self.progress.offset
        before = self._read(min(offset, TAIL_BYTES), max(0, offset - TAIL_BYTES))
        start = len(before)
        for length in cutter.lengths(most):
            data = before + self._read(min(length, end - offset), offset)
            if len(data) < start + length or cutter.is_enough(data, start, len(data), most):
                break
        return replace(cutter.split(data, start, len(data)), size=end)

    def _read(self, size: int, at: int) -> bytes:
        """Return so many bytes from a position on, fewer at the end and before a hole."""
        parts = list[bytes]()
        for one in tuple(self.segments):
            if size > 0 and one.start <= at < one.end:
                parts.append(one.read(min(size, one.end - at), at - one.start))
                at, size = at + len(parts[-1]), size - len(parts[-1])
        return b"".join(parts)

    def _take_rest(self, reading: Reading, is_closed: bool, now: int) -> list[Block]:
        """Take what no more is waited for: whole lines of a record, of a closed file all bytes."""
        lines = reading.rest if is_closed else reading.rest[: reading.rest.rfind(b"\n") + 1]
        if not lines:
            return []
        self.progress, block = self.progress.take(reading, lines, reading.tail, now)
        return [replace(block, is_rest=block.goes_on)]

    def _search_end(self, cutter: Cutter, reading: Reading) -> tuple[bool, int]:
        """Return whether the over-long record has an end, or 16 MiB, and its known lines."""
        blocks = SEGMENT // cutter.block_size + 1
        has_end, reached, found = cutter.search_end(self._read, reading, blocks)
        self.progress = self.progress._replace(searched=found)
        return has_end or reached >= self.progress.offset + SEGMENT, found.lines
