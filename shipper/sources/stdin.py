"""Spools standard input into files, which the follower reads, until it is acknowledged.

    standard input ──▶ <state-dir>/<host>/stdin-<number>-<file id> ──follower──▶ … ──▶ removed

The name of a segment holds its file id, so its position is known whatever it contains. A thread
copies from the start of the program on, with or without a broker. Segments survive the end of the
process, but not a crash of the machine: nothing is synced.
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
import struct
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import aiofiles

from nats_logship.app.exits import OperatorError
from nats_logship.app.files import FOLDER_ID, Folder, make_folder
from nats_logship.app.locks import try_lock
from nats_logship.wire.positions import Cursor
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.files.follower import Follower
from shipper.sources.files.identity import HEAD_BYTES, identify
from shipper.sources.files.paths import Selection

_INPUT = 0  # descriptor
_SEGMENT = 16 * 1024 * 1024
"""Bytes of a segment, which is removed as a whole when all of it is acknowledged."""
_MOST = 256 * 1024 * 1024
"""Bytes of unacknowledged input: minutes of a busy host without a broker, and little for a disk."""
_CHUNK = 64 * 1024  # bytes that a pipe holds
_BY_THE_BYTE = 256 * 1024  # bytes: at most a fifth of a second for each segment
_PAUSE = 0.01  # seconds after a small read: a copy for each line would use a whole core
_RETRY = 1.0  # seconds
_LAST_COPY = 0.5  # seconds to copy the rest of the input when the program must end
_NAME = re.compile(r"stdin-([0-9]{8,})-(.+)")
logger = logging.getLogger(__name__)


class _Input:
    """Standard input: a pipe, a terminal, a socket or a file, which may be non-blocking.

    The kernel copies from a pipe (splice(2)), so after a kill each byte is in the pipe or in a
    segment. Up to 64 KiB of any other input are in memory meanwhile, in `_rest`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        self._rest = b""
        self._wake = os.eventfd(0)
        self._poll = select.poll()
        for one in (descriptor, self._wake):
            self._poll.register(one, select.POLLIN)

    def wait(self) -> bool:
        """Wait until bytes or the end can be read; return False if `wake` was called first."""
        return bool(self._rest) or self._descriptor in dict(self._poll.poll())

    def wake(self) -> None:
        """Make `wait` return at once from now on."""
        os.eventfd_write(self._wake, 1)

    def move(self, target: int, position: int, most: int) -> int | None:
        """Move bytes to a position in a file; return how many: 0 at the end, None if none wait.

        Raises OSError for the file, `OperatorError` for the input.
        """
        if self._is_pipe:
            try:
                flags = os.SPLICE_F_NONBLOCK
                return os.splice(self._descriptor, target, most, offset_dst=position, flags=flags)
            except BlockingIOError:
                return None
        try:
            self._rest = self._rest or os.read(self._descriptor, min(most, _CHUNK))
        except BlockingIOError:
            return None
        except OSError as error:
            raise OperatorError(f"cannot read standard input: {error.strerror}") from None
        written = os.pwrite(target, self._rest[:most], position)
        self._rest = self._rest[written:]
        return written

    @property
    def unread(self) -> int:
        """How many bytes of the input are in no file, as far as the kernel knows."""
        try:
            answer = fcntl.ioctl(self._descriptor, termios.FIONREAD, struct.pack("i", 0))
        except OSError:  # a device that does not know
            return len(self._rest)
        (waiting,) = struct.unpack("i", answer)
        return len(self._rest) + max(0, int(waiting))


@dataclass(slots=True)
class _Segment:
    """A file of the spool, locked through its descriptor; a closed one does not grow any more."""

    name: str
    file: str
    descriptor: int
    size: int = 0
    acknowledged: int = 0
    is_closed: bool = False

    def end_line(self) -> None:
        """Add the newline that the last line lacks, if it does; raises OSError."""
        if not self.is_at_line_end():
            self.size += os.pwrite(self.descriptor, b"\n", self.size)

    @property
    def most(self) -> int:
        """How many bytes to append at a time: one by one behind 16 MiB, to end with a line."""
        if self.size < _SEGMENT:
            return _SEGMENT - self.size
        return 1 if self.size < _SEGMENT + _BY_THE_BYTE else _CHUNK

    def is_at_line_end(self) -> bool:
        """Whether the last line is finished."""
        return not self.size or os.pread(self.descriptor, 1, self.size - 1) == b"\n"


class Spool:
    """The segments of one host: those that earlier runs left, then those of this run.

    `trouble` is why nothing can be written, empty if all is well. A segment ends at the first
    newline behind 16 MiB; nothing is read while 256 MiB are not acknowledged.
    """

    def __init__(self, folder: Folder, new_id: Callable[[], str], clock: Callable[[], int]) -> None:
        """Take over the segments that no other process holds, and begin to copy; raises OSError."""
        self.trouble = ""
        self._folder = folder
        self._new_id = new_id
        self._clock = clock
        self._number = 0
        self._segments: list[_Segment] = []
        self._has_ended = self._is_stopping = False
        self._error: OperatorError | None = None
        self._notify: Callable[[], object] = bool
        self._removing = threading.Lock()
        self._input = _Input(_INPUT)
        found = [match for name in folder.names() if (match := _NAME.fullmatch(name))]
        for match in sorted(found, key=lambda match: int(match[1])):
            self._number = int(match[1])
            # another shipper may hold it, which is about to end or ships to another broker
            with suppress(BlockingIOError):
                segment = self._add(match[0], match[2])
                segment.end_line()  # the run that wrote it was killed
                segment.is_closed = True
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _add(self, name: str, file: str, flags: int = 0) -> _Segment:
        """Open, lock and append a segment; raises BlockingIOError if another process holds it."""
        descriptor = self._folder.open(name, os.O_RDWR | flags, 0o600)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise BlockingIOError(errno.EWOULDBLOCK, f"another process holds {name}")
        self._segments.append(_Segment(name, file, descriptor, os.fstat(descriptor).st_size))
        return self._segments[-1]

    @property
    def is_done(self) -> bool:
        """Whether the input has ended, and all of it is acknowledged."""
        return self._has_ended and not self.behind

    def stop(self) -> int:
        """Copy the present input within half a second; return how many bytes were not copied."""
        self._is_stopping = True
        self._input.wake()
        self._thread.join(_LAST_COPY)
        return 0 if self._has_ended else self._input.unread

    @property
    def behind(self) -> int:
        """Spooled bytes that are not acknowledged."""
        return sum(segment.size - segment.acknowledged for segment in tuple(self._segments))

    async def run(self, acknowledged: Acknowledged, follower: Follower) -> None:
        """Have the follower read one segment after the other, until all input is acknowledged."""
        loop, followed = asyncio.get_running_loop(), None
        self._notify = lambda: loop.call_soon_threadsafe(acknowledged.moved.set)
        while (left := self._left(acknowledged)) or not self._has_ended:
            if left and left[0].size and left[0] is not followed:
                followed = left[0]
                path = glob.escape(str(self._folder.path / followed.name))
                cursor = await self._cursor(followed, acknowledged)
                await follower.retarget(Selection.of([path]), cursor)
                # not before: the follower would log that the segment that it follows is gone
                await asyncio.to_thread(self._remove_before, followed)
            else:
                await acknowledged.moved.wait()
                acknowledged.moved.clear()

    def finish(self) -> None:
        """Remove all segments; raises `OperatorError` if the input was not read to its end."""
        self._remove_before(None)
        if self._error is not None:
            raise self._error

    def _left(self, acknowledged: Acknowledged) -> list[_Segment]:
        """Return the segments that are not acknowledged, or may still grow."""
        segments = tuple(self._segments)
        for segment in segments:
            segment.acknowledged = acknowledged.position(segment.file)
        return [
            segment
            for segment in segments
            if segment.acknowledged < segment.size or not (segment.is_closed or self._has_ended)
        ]

    async def _cursor(self, segment: _Segment, acknowledged: Acknowledged) -> Cursor:
        inode = os.fstat(segment.descriptor).st_ino
        if known := acknowledged.positions.files.get(segment.file):
            return replace(known, identity=known.identity._replace(inode=inode))
        async with aiofiles.open(segment.descriptor, "rb", buffering=0, closefd=False) as file:
            await file.seek(0)
            head = await file.read(HEAD_BYTES)
        return Cursor(segment.file, "-", 0, identify(inode, head, b""), self._clock())

    def _remove_before(self, segment: _Segment | None) -> None:
        with self._removing:  # the thread of a session that was lost may still remove segments
            while self._segments and self._segments[0] is not segment:
                done = self._segments.pop(0)
                with suppress(OSError):  # the next run removes it
                    self._folder.remove(done.name)
                os.close(done.descriptor)

    # what the copying thread does

    def _fill(self) -> None:
        while not self._has_ended and self._input.wait():
            copied = 0
            try:
                if self.behind < _MOST:
                    copied = self._copy()
                self._note_trouble("")
            except OSError as error:
                self._note_trouble(f"cannot write to {self._folder.path}: {error.strerror}")
            with suppress(RuntimeError):  # the event loop has ended, the process is about to
                self._notify()
            if self._is_stopping and not copied:
                return
            if copied < _CHUNK // 2:
                time.sleep(_RETRY if self.trouble else _PAUSE)

    def _note_trouble(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            logger.warning("%s; standard input is not read until that works", trouble)
        elif self.trouble and not trouble:
            logger.info("standard input is read again")
        self.trouble = trouble

    def _copy(self) -> int:
        """Copy from the input to a segment, and return how many bytes; raises OSError."""
        if self._segments and not self._segments[-1].is_closed:
            segment = self._segments[-1]
        else:
            file = self._new_id()
            self._number += 1
            name = f"stdin-{self._number:08}-{file}"
            segment = self._add(name, file, os.O_CREAT | os.O_EXCL)
        copied = size = self._move(segment)
        while size and segment.most == 1 and not segment.is_at_line_end():
            copied += (size := self._move(segment))
        segment.is_closed = segment.size >= _SEGMENT and segment.is_at_line_end()
        return copied

    def _move(self, segment: _Segment) -> int:
        """Move bytes to the end of a segment, and return how many; notes the end of the input."""
        try:
            moved = self._input.move(segment.descriptor, segment.size, segment.most)
        except OperatorError as error:
            self._error, moved = error, 0
        if moved == 0:
            segment.end_line()
            self._has_ended = True
        segment.size += moved or 0
        return moved or 0


def open_spool(
    state_dir: Path, host: str, new_id: Callable[[], str], clock: Callable[[], int]
) -> Spool:
    """Open the spool of a host in `state_dir`, which is made and marked; raises `OperatorError`."""
    try:
        with make_folder(state_dir, 0o700) as folder:
            os.close(folder.open(FOLDER_ID, os.O_RDONLY | os.O_CREAT, 0o600))
            return Spool(folder.make(host, 0o700), new_id, clock)
    except OSError as error:
        raise OperatorError(
            f"cannot spool standard input: {error.filename}: {error.strerror}; check --state-dir"
        ) from None
