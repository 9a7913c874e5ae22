"""A file of a spool: it is appended to until it is closed, and read from its beginning."""

import os
import time
from dataclasses import dataclass, field, replace
from functools import partial

from nats_logship.wire.positions import Cursor
from nats_logship.wire.records import Records
from shipper.sources.block import Block
from shipper.sources.files.cutter import Cutter, is_inside_record
from shipper.sources.files.identity import HEAD_BYTES, TAIL_BYTES, is_inside_line
from shipper.sources.files.progress import Progress, Reading
from shipper.sources.inputs import CHUNK

SEGMENT = 16 * 1024 * 1024
"""Bytes of a segment, which is removed as a whole when all of it is acknowledged."""
_STEP = 256 * 1024  # bytes: at most a fifth of a second for each segment, one by one


@dataclass(slots=True)
class Segment:
    """A file of the spool, locked through its descriptor; a closed one does not grow any more.

    `grown_at` is when it grew last, in nanoseconds of the monotonic clock. `holds_lines`: whole
    lines wait for the end of their record.
    """

    name: str
    descriptor: int
    size: int
    progress: Progress
    is_closed: bool = False
    grown_at: int = field(default_factory=time.monotonic_ns)
    holds_lines: bool = False

    @property
    def file(self) -> str:
        """Its file id."""
        return self.progress.file

    @property
    def unread(self) -> int:
        """How many bytes were not read."""
        return max(0, self.size - self.progress.offset)

    def end_line(self) -> None:
        """Add the newline that the last line lacks, if it does; raises OSError."""
        if not self.is_at_line_end():
            self.grow(os.pwrite(self.descriptor, b"\n", self.size))

    def grow(self, by: int) -> None:
        """Note that so many bytes were appended."""
        self.grown_at = time.monotonic_ns()  # before the size, which another thread reads first
        self.size += by

    @property
    def most(self) -> int:
        """How many bytes to append at a time: one by one behind 16 MiB, to end with a line."""
        if self.size < SEGMENT:
            return SEGMENT - self.size
        return 1 if self.size < SEGMENT + _STEP else CHUNK

    def is_at_line_end(self) -> bool:
        """Whether the last line is finished."""
        return not self.size or os.pread(self.descriptor, 1, self.size - 1) == b"\n"

    def rewind(self, cursor: Cursor, records: Records | None) -> None:
        """Read on from the cursor, perhaps inside one of these records."""
        read, offset = partial(os.pread, self.descriptor), cursor.offset
        start = max(0, offset - TAIL_BYTES)
        in_line = is_inside_line(read(offset - start, start))
        if records is not None and offset:
            in_line |= is_inside_record(records, read, offset)
        head, inode = read(HEAD_BYTES, 0), os.fstat(self.descriptor).st_ino
        self.progress = Progress.begin(cursor, inode, head, in_line)
        self.holds_lines = False

    def cutter(self, records: Records | None, sizes: tuple[int, int], lines: int) -> Cutter:
        """Return what cuts records of so many lines, in blocks and lines of these sizes."""
        return Cutter(self.progress, records, *sizes, lines)

    def read(self, cutter: Cutter, most: int, timeout: int, now: int) -> Block | None:
        """Return about `most` bytes of whole records, or a piece of an over-long one; None if none.

        The first piece of such a record waits until that has ended, or has 16 MiB. A record has
        also ended if the segment is closed, or its lines were not followed for the timeout.
        """
        is_closed = self.is_closed  # in this order: another thread writes them
        size, grown_at = self.size, self.grown_at
        is_quiet = time.monotonic_ns() >= grown_at + timeout
        reading = self._read(cutter, most, size)
        is_piece = reading.goes_on or not reading.run.endswith(b"\n")
        if reading.run and is_piece and not (is_closed or cutter.is_begun(reading)):
            has_end, lines = self._search_end(cutter, reading)
            self.holds_lines = not has_end and lines > 0
            if not has_end and not (self.holds_lines and is_quiet):
                return None
        self.progress, blocks = self.progress.accept(reading, now)
        if not blocks and (is_closed or is_quiet):
            blocks = self._take_rest(reading, now)
        self.holds_lines = not blocks and reading.holds_lines
        return blocks[0] if blocks else None

    def _read(self, cutter: Cutter, most: int, size: int) -> Reading:
        offset = self.progress.offset
        start = min(offset, TAIL_BYTES)
        for length in cutter.lengths(most):
            wanted = start + max(0, min(length, size - offset))
            data = os.pread(self.descriptor, wanted, offset - start)
            if wanted < start + length or cutter.is_enough(data, start, len(data), most):
                break
        return replace(cutter.split(data, start, len(data)), size=size)

    def _take_rest(self, reading: Reading, now: int) -> list[Block]:
        """Take the whole lines of the unfinished record, of which no more is waited for."""
        lines = reading.rest[: reading.rest.rfind(b"\n") + 1]
        if not lines:
            return []
        self.progress, block = self.progress.take(reading, lines, reading.tail, now)
        return [block]

    def _search_end(self, cutter: Cutter, reading: Reading) -> tuple[bool, int]:
        """Return whether the over-long record has an end, or 16 MiB, and its known lines."""
        read, blocks = partial(os.pread, self.descriptor), SEGMENT // cutter.block_size + 1
        has_end, reached, found = cutter.search_end(read, reading, blocks)
        self.progress = self.progress._replace(searched=found)
        return has_end or reached >= self.progress.offset + SEGMENT, found.lines
