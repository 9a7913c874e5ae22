"""Keeps standard input in files until it is acknowledged; the follower reads one after the other.

    standard input ──▶ <state-dir>/<host>/stdin-<number>-<file id> ──follower──▶ … ──▶ removed

A segment is named by its file id, so its position is found whatever it holds. A thread copies from
the start of the program on, whether or not there is a broker; a session attaches to what is there.
It ends with the process, as do locks and descriptors. A segment survives the end of the process,
not that of the machine: nothing is synced.
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

from nats_logship.app.exits import OperatorError
from nats_logship.app.files import Folder
from nats_logship.app.locks import try_lock
from nats_logship.wire.positions import Cursor
from shipper.loop import ShippingLoop
from shipper.sources.files.identity import HEAD_BYTES, identify
from shipper.sources.files.paths import Selection

_INPUT = 0  # descriptor
_SEGMENT = 16 * 1024 * 1024
"""Bytes; what is acknowledged keeps its space on disk until all of its segment is."""
_MOST = 256 * 1024 * 1024
"""Bytes: minutes of a busy host without a broker, and little for a disk."""
_CHUNK = 64 * 1024  # bytes: what a pipe holds
_BY_THE_BYTE = 256 * 1024  # bytes: a fifth of a second at most for each segment
_PAUSE = 0.01  # seconds after a small read: a line at a time would cost a core
_RETRY = 1.0  # seconds
_LAST_COPY = 0.5  # seconds for what the input holds when the program must end
_NAME = re.compile(r"stdin-([0-9]{8,})-(.+)")
logger = logging.getLogger(__name__)


class _Input:
    """Standard input: a pipe, a terminal, a socket or a file, which may be non-blocking.

    The kernel copies from a pipe (splice(2)): whenever the process is killed, each byte is in the
    pipe or in a segment. Of any other input up to 64 KiB are in memory in between, in `_rest`.
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
        """Wait until bytes or the end can be read; return False where `wake` came first."""
        return bool(self._rest) or self._descriptor in dict(self._poll.poll())

    def wake(self) -> None:
        """Have `wait` return at once from now on."""
        os.eventfd_write(self._wake, 1)

    def move(self, target: int, place: int, most: int) -> int | None:
        """Move bytes to a place in a file, and return how many: 0 at the end, None if none come.

        Raises OSError for the file, `OperatorError` for the input.
        """
        if self._is_pipe:
            try:
                flags = os.SPLICE_F_NONBLOCK
                return os.splice(self._descriptor, target, most, offset_dst=place, flags=flags)
            except BlockingIOError:
                return None
        try:
            self._rest = self._rest or os.read(self._descriptor, min(most, _CHUNK))
        except BlockingIOError:
            return None
        except OSError as error:
            raise OperatorError(f"cannot read standard input: {error.strerror}") from None
        written = os.pwrite(target, self._rest[:most], place)
        self._rest = self._rest[written:]
        return written

    @property
    def unread(self) -> int:
        """How many bytes are there that no file holds, as far as the kernel says."""
        try:
            answer = fcntl.ioctl(self._descriptor, termios.FIONREAD, struct.pack("i", 0))
        except OSError:  # a device that cannot say
            return len(self._rest)
        (waiting,) = struct.unpack("i", answer)
        return len(self._rest) + max(0, int(waiting))


@dataclass(slots=True)
class _Segment:
    """A file of the spool, locked by its open descriptor; nothing is appended once it is closed."""

    name: str
    file: str
    descriptor: int
    size: int = 0
    acknowledged: int = 0
    is_closed: bool = False

    def end_line(self) -> None:
        """Add the newline that the last line lacks; raises OSError."""
        if not self.ends():
            self.size += os.pwrite(self.descriptor, b"\n", self.size)

    @property
    def most(self) -> int:
        """How many bytes to append at a time: a full segment ends with a line, unless it is long.

        So bytes are appended one by one behind 16 MiB.
        """
        if self.size < _SEGMENT:
            return _SEGMENT - self.size
        return 1 if self.size < _SEGMENT + _BY_THE_BYTE else _CHUNK

    def ends(self) -> bool:
        """Whether no line is unfinished."""
        return not self.size or os.pread(self.descriptor, 1, self.size - 1) == b"\n"


class Spool:
    """The segments of one host: those that were left by earlier runs, then those of this run.

    `trouble` says why nothing can be written, and is empty while all goes well. A segment ends at the first newline behind
    16 MiB; nothing is read while 256 MiB are not acknowledged.
    """

    def __init__(self, folder: Folder, new_id: Callable[[], str], clock: Callable[[], int]) -> None:
        """Take up the segments in the folder that no other process holds, and begin to copy.

        Raises OSError.
        """
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
            # it may be another shipper's, which is about to end, or ships to another broker
            with suppress(BlockingIOError):
                segment = self._add(match[0], match[2])
                segment.end_line()  # where a run was killed: that was the end of its input
                segment.is_closed = True
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _add(self, name: str, file: str, flags: int = 0) -> _Segment:
        """Open and lock a segment, the last one from now on; raises BlockingIOError where another process holds it."""
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
        """Copy what the input holds now, then no more; return how many bytes could not be copied.

        Half a second is waited for a disk that does not answer, or a writer that writes on and on.
        """
        self._is_stopping = True
        self._input.wake()
        self._thread.join(_LAST_COPY)
        return 0 if self._has_ended else self._input.unread

    @property
    def behind(self) -> int:
        """Bytes that are kept and not acknowledged."""
        return sum(segment.size - segment.acknowledged for segment in tuple(self._segments))

    async def run(self, shipping: ShippingLoop) -> None:
        """Have what is kept followed, in one session, until all of it is acknowledged."""
        loop, followed = asyncio.get_running_loop(), None
        self._notify = lambda: loop.call_soon_threadsafe(shipping.moved.set)
        while (left := self._left(shipping)) or not self._has_ended:
            if left and left[0].size and left[0] is not followed:
                followed = left[0]
                path = glob.escape(str(self._folder.path / followed.name))
                cursor = await asyncio.to_thread(self._cursor, followed, shipping)
                await shipping.follower.retarget(Selection.of([path]), cursor)
                # the follower would say of a segment that it follows that it is gone
                await asyncio.to_thread(self._remove_before, followed)
            else:
                await shipping.moved.wait()
                shipping.moved.clear()

    def finish(self) -> None:
        """Remove what is acknowledged, once nothing is followed any more.

        Raises `OperatorError` when the input could not be read to its end.
        """
        self._remove_before(None)
        if self._error is not None:
            raise self._error

    def _left(self, shipping: ShippingLoop) -> list[_Segment]:
        """Return the segments that are not acknowledged, or may still grow."""
        segments = tuple(self._segments)
        for segment in segments:
            segment.acknowledged = shipping.position(segment.file)
        return [
            segment
            for segment in segments
            if segment.acknowledged < segment.size or not (segment.is_closed or self._has_ended)
        ]

    def _cursor(self, segment: _Segment, shipping: ShippingLoop) -> Cursor:
        inode = os.fstat(segment.descriptor).st_ino
        if known := shipping.positions.files.get(segment.file):
            return replace(known, identity=replace(known.identity, inode=inode))
        head = os.pread(segment.descriptor, HEAD_BYTES, 0)
        return Cursor(segment.file, "-", 0, identify(inode, head, b""), self._clock())

    def _remove_before(self, segment: _Segment | None) -> None:
        with self._removing:  # one that was cancelled with the session before goes on in its thread
            while self._segments and self._segments[0] is not segment:
                done = self._segments.pop(0)
                with suppress(OSError):  # the next run removes it
                    self._folder.remove(done.name)
                os.close(done.descriptor)

    # what the threads do

    def _fill(self) -> None:
        while not self._has_ended and self._input.wait():
            copied = 0
            try:
                if self.behind < _MOST:
                    copied = self._copy()
                self._report("")
            except OSError as error:
                self._report(f"cannot write to {self._folder.path}: {error.strerror}")
            with suppress(RuntimeError):  # the loop has ended, and so will the process
                self._notify()
            if self._is_stopping and not copied:
                return
            if copied < _CHUNK // 2:
                time.sleep(_RETRY if self.trouble else _PAUSE)

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            logger.warning("%s; standard input waits until that works", trouble)
        elif self.trouble and not trouble:
            logger.info("standard input is read again")
        self.trouble = trouble

    def _copy(self) -> int:
        """Copy what comes from the input to a segment, and return how many bytes.

        Raises OSError when the disk takes no more.
        """
        if self._segments and not self._segments[-1].is_closed:
            segment = self._segments[-1]
        else:
            file = self._new_id()
            self._number += 1
            name = f"stdin-{self._number:08}-{file}"
            segment = self._add(name, file, os.O_CREAT | os.O_EXCL)
        copied = size = self._move(segment)
        while size and segment.most == 1 and not segment.ends():
            copied += (size := self._move(segment))
        segment.is_closed = segment.size >= _SEGMENT and segment.ends()
        return copied

    def _move(self, segment: _Segment) -> int:
        """Move bytes to the end of a segment, and return how many; take note of the input's end."""
        try:
            moved = self._input.move(segment.descriptor, segment.size, segment.most)
        except OperatorError as error:
            self._error, moved = error, 0
        if moved == 0:
            segment.end_line()
            self._has_ended = True
        segment.size += moved or 0
        return moved or 0
