"""Keeps standard input in files until it is acknowledged; the follower reads one after the other, as it reads any file.

    standard input ──▶ <state-dir>/<host>/stdin-<number>-<file id> ──follower──▶ … ──acknowledged──▶ removed

A segment is named by its file id, so its position is found whatever it holds. The kernel copies from a pipe (splice(2)):
whenever the process is killed, each byte is in the pipe or in a segment. A segment survives the end of the process, not
that of the machine: nothing is synced.
"""

import asyncio
import errno
import fcntl
import glob
import logging
import os
import re
import select
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from broker.app.exits import OperatorError
from broker.app.files import Folder
from broker.wire.positions import Cursor
from shipper.shipping import Shipping
from shipper.tail.follower import Follower
from shipper.tail.identity import HEAD_BYTES, identify
from shipper.tail.paths import Selection

__all__ = ["PATH", "Spool"]

PATH = "-"
"""The path of standard input in settings and headers."""

_SEGMENT = 16 * 1024 * 1024
"""Bytes; what is acknowledged keeps its space on disk until all of its segment is."""
_MOST = 256 * 1024 * 1024
"""Bytes: minutes of a busy host without a broker, and little for a disk."""
_CHUNK = 64 * 1024  # bytes: what a pipe holds
_BY_THE_BYTE = 256 * 1024  # bytes: a fifth of a second at most for each segment
_PAUSE = 0.01  # seconds after a small read: a line at a time would cost a core
_RETRY = 1.0  # seconds
_PATIENCE = 300  # milliseconds that a stop may have to wait for a thread that waits for the writer
_NAME = re.compile(r"stdin-([0-9]{8,})-(.+)")
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Segment:
    """A file of the spool, locked by its open descriptor; nothing is appended once it is closed."""

    name: str
    file: str
    descriptor: int
    size: int = 0
    acknowledged: int = 0
    is_closed: bool = False

    def append(self, data: bytes) -> int:
        """Write some of this at the end, and return how many bytes; raises OSError."""
        written = os.pwrite(self.descriptor, data, self.size)
        self.size += written
        return written

    def ends(self) -> bool:
        """Whether no line is unfinished."""
        return not self.size or os.pread(self.descriptor, 1, self.size - 1) == b"\n"


class Spool:
    """The segments of one host: those that were left by earlier runs, then those of this run.

    `trouble` says why nothing can be written, and is empty while all goes well. A segment ends at the first newline behind
    `segment_size` bytes; nothing is read while `most` bytes are not acknowledged.
    """

    def __init__(
        self,
        folder: Folder,
        new_id: Callable[[], str],
        clock: Callable[[], int],
        *,
        descriptor: int = 0,
        segment_size: int = _SEGMENT,
        most: int = _MOST,
    ) -> None:
        """Take up the segments in the folder that no other process holds; raises OSError."""
        self.trouble = ""
        self._folder = folder
        self._new_id = new_id
        self._clock = clock
        self._input = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)
        self._is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        self._segment_size = segment_size
        self._most = most
        self._number = 0
        self._segments: list[_Segment] = []
        self._unwritten = b""
        self._is_over = False
        self._disk = threading.Lock()
        self._take_up()

    def _take_up(self) -> None:
        found = [match for name in self._folder.names() if (match := _NAME.fullmatch(name))]
        for match in sorted(found, key=lambda match: int(match[1])):
            self._number = int(match[1])
            descriptor = self._folder.open(match[0], os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue  # another shipper, which is about to end, or ships to another broker
            size = os.fstat(descriptor).st_size
            segment = _Segment(match[0], match[2], descriptor, size, is_closed=True)
            self._segments.append(segment)
            if not segment.ends():
                segment.append(b"\n")  # a run was killed there: that was the end of its input

    @property
    def is_done(self) -> bool:
        """Whether the input has ended, and all of it is acknowledged."""
        return self._has_ended and not self._segments

    @property
    def unwritten(self) -> int:
        """Bytes that were read and that the disk has not taken."""
        return len(self._unwritten)

    @property
    def behind(self) -> int:
        """Bytes that are kept and not acknowledged."""
        return sum(segment.size - segment.acknowledged for segment in self._segments)

    @property
    def _has_ended(self) -> bool:
        return self._is_over and not self._unwritten

    async def run(self, follower: Follower, shipping: Shipping) -> None:
        """Copy the input, and have it followed, until its end is acknowledged; raises `OperatorError` when reading fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fill(shipping.moved))
            await self._follow(follower, shipping)

    async def close(self) -> None:
        """Close the files; what is not acknowledged stays for the next run."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._disk:
            for segment in self._segments:
                os.close(segment.descriptor)
            self._folder.close()

    async def _follow(self, follower: Follower, shipping: Shipping) -> None:
        followed: _Segment | None = None
        while (left := self._left(shipping)) or not self._has_ended:
            if left and left[0].size and left[0] is not followed:
                followed = left[0]
                path = glob.escape(str(self._folder.path / followed.name))
                cursor = await asyncio.to_thread(self._cursor, followed, shipping)
                await follower.turn_to(Selection.of([path]), cursor)
                # the follower would say of a segment that it follows that it is gone
                await asyncio.to_thread(self._remove_before, followed)
            else:
                await shipping.moved.wait()
                shipping.moved.clear()
        await asyncio.to_thread(self._remove_before, None)

    def _left(self, shipping: Shipping) -> list[_Segment]:
        """Return the segments that are not acknowledged, or may still grow."""
        # a copy: a removal that was cancelled with the session before goes on in its thread
        segments = tuple(self._segments)
        for segment in segments:
            segment.acknowledged = shipping.position(segment.file)
        return [
            segment
            for segment in segments
            if segment.acknowledged < segment.size or not (segment.is_closed or self._has_ended)
        ]

    def _cursor(self, segment: _Segment, shipping: Shipping) -> Cursor:
        inode = os.fstat(segment.descriptor).st_ino
        if known := shipping.positions.files.get(segment.file):
            return replace(known, identity=replace(known.identity, inode=inode))
        head = os.pread(segment.descriptor, HEAD_BYTES, 0)
        return Cursor(segment.file, PATH, 0, identify(inode, head, b""), self._clock())

    def _remove_before(self, segment: _Segment | None) -> None:
        with self._disk:
            while self._segments and self._segments[0] is not segment:
                done = self._segments.pop(0)
                with suppress(OSError):  # the next run removes it
                    self._folder.remove(done.name)
                os.close(done.descriptor)

    async def _fill(self, moved: asyncio.Event) -> None:
        while not self._has_ended:
            if self.behind >= self._most:
                await asyncio.sleep(_PAUSE)
                continue
            try:
                copied = await asyncio.to_thread(self._copy)
            except OSError as error:
                self._report(f"cannot write to {self._folder.path}: {error.strerror}")
                await asyncio.sleep(_RETRY)
                continue
            self._report("")
            moved.set()
            if copied < _CHUNK // 2:
                await asyncio.sleep(_PAUSE)

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            logger.warning("%s; standard input waits until that works", trouble)
        elif self.trouble and not trouble:
            logger.info("standard input is read again")
        self.trouble = trouble

    def _copy(self) -> int:
        """Copy what can be read soon, and return how many bytes; raises OSError when the disk takes no more, and `OperatorError`."""
        copied = 0
        with self._disk:  # a copying that was cancelled goes on to its end
            while copied < _CHUNK and (
                self._unwritten or self._ready.poll(0 if copied else _PATIENCE)
            ):
                if not (size := self._move()):
                    break
                copied += size
        return copied

    def _move(self) -> int:
        """Move bytes from the input to a segment; none at the end."""
        segment = self._open()
        # a full segment closes where its last line ends, so that one is copied by the byte, unless it is very long
        over = segment.size - self._segment_size
        most = -over if over < 0 else 1 if over < _BY_THE_BYTE else _CHUNK
        size = 0 if self._unwritten else self._splice(segment, most)
        if not size:
            self._unwritten = self._unwritten or self._read(most)
            size = segment.append(self._unwritten)
            self._unwritten = self._unwritten[size:]
        segment.is_closed = segment.size >= self._segment_size and segment.ends()
        return size

    def _open(self) -> _Segment:
        """Return the last segment, or another one if it is closed."""
        if not self._segments or self._segments[-1].is_closed:
            file = self._new_id()
            name = f"stdin-{self._number + 1:08}-{file}"
            descriptor = self._folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._number += 1
            self._segments.append(_Segment(name, file, descriptor))
        return self._segments[-1]

    def _splice(self, segment: _Segment, most: int) -> int:
        """Have the kernel copy from a pipe, and return how many bytes; 0 at the end, and where it cannot."""
        size = 0
        try:
            if self._is_pipe:
                size = os.splice(self._input, segment.descriptor, most, offset_dst=segment.size)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._is_pipe = False  # this file system does not know how
        segment.size += size
        return size

    def _read(self, most: int) -> bytes:
        try:
            data = os.read(self._input, min(most, _CHUNK))
        except OSError as error:
            raise OperatorError(f"cannot read standard input: {error.strerror}") from None
        if data:
            return data
        self._is_over = True
        return b"" if self._segments[-1].ends() else b"\n"
