"""A file of a spool: it is appended to until it is closed, and read from its beginning."""

import os
from dataclasses import dataclass

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.identity import HEAD_BYTES, TAIL_BYTES, is_inside_line
from shipper.sources.files.progress import Progress, Reading
from shipper.sources.files.reader import end_of_run
from shipper.sources.inputs import CHUNK

SEGMENT = 16 * 1024 * 1024
"""Bytes of a segment, which is removed as a whole when all of it is acknowledged."""
_STEP = 256 * 1024  # bytes: at most a fifth of a second for each segment, one by one


@dataclass(slots=True)
class Segment:
    """A file of the spool, locked through its descriptor; a closed one does not grow any more.

    `tail` are the bytes before the next one to read, `searched` is how far the end of an over-long
    line was searched.
    """

    name: str
    descriptor: int
    size: int
    progress: Progress
    tail: bytes = b""
    searched: int = 0
    is_closed: bool = False

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
            self.size += os.pwrite(self.descriptor, b"\n", self.size)

    @property
    def most(self) -> int:
        """How many bytes to append at a time: one by one behind 16 MiB, to end with a line."""
        if self.size < SEGMENT:
            return SEGMENT - self.size
        return 1 if self.size < SEGMENT + _STEP else CHUNK

    def is_at_line_end(self) -> bool:
        """Whether the last line is finished."""
        return not self.size or os.pread(self.descriptor, 1, self.size - 1) == b"\n"

    def rewind(self, cursor: Cursor) -> None:
        """Read on from the cursor."""
        start = max(0, cursor.offset - TAIL_BYTES)
        self.tail = os.pread(self.descriptor, cursor.offset - start, start)
        head, inode = os.pread(self.descriptor, HEAD_BYTES, 0), os.fstat(self.descriptor).st_ino
        self.progress = Progress.begin(cursor, inode, head, is_inside_line(self.tail))
        self.searched = 0

    def read(self, most: int, max_line: int, now: int) -> Block | None:
        """Return about `most` bytes of whole lines, or a piece of an over-long one; None if none.

        The first piece of such a line waits until the line has ended, or has 16 MiB.
        """
        start = self.progress.offset
        for length in (most, max_line + 1):
            data = os.pread(self.descriptor, min(length, self.unread), start)
            if len(data) < length or b"\n" in data:
                break
        run = data[: end_of_run(data, 0, len(data), max(most, max_line), max_line)]
        is_piece = run and not run.endswith(b"\n")
        if not run or (is_piece and not self.progress.in_line and not self._has_end(max_line)):
            return None
        reading = Reading(True, self.size, 0, run)
        self.progress, block = self.progress.take(reading, run, self.tail, now)
        self.tail = (self.tail + run[-TAIL_BYTES:])[-TAIL_BYTES:]
        return block

    def _has_end(self, max_line: int) -> bool:
        start = self.progress.offset
        at = max(self.searched, start + max_line)
        while at < min(self.size, start + SEGMENT):
            data = os.pread(self.descriptor, min(_STEP, self.size - at), at)
            if b"\n" in data:
                return True
            at += len(data)
        self.searched = at
        return at >= start + SEGMENT
