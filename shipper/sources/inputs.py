"""What is spooled before it is read: standard input, and pipes that have a name.

The kernel copies from a pipe (splice(2)), so after a kill each byte is in the pipe or in a segment
of the spool. Up to 64 KiB of any other input are in memory meanwhile.
"""

import errno
import fcntl
import os
import select
import stat
import struct
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress

from nats_logship.app.exits import ConfigurationError, OperatorError
from shipper.sources.files.paths import expand_braces

STANDARD_INPUT = "-"
CHUNK = 64 * 1024
"""Bytes that a pipe holds."""
_INPUT = 0  # descriptor
_CHECK_EVERY = 5000  # milliseconds: another pipe may be made at the path


def find_inputs(names: Iterable[str]) -> Mapping[str, str]:
    """Return which of these names are inputs, each with the path under which its lines are sent.

    A pipe is one that is there now. Raises `ConfigurationError` for an input that is named twice.
    """
    found: dict[str, str] = {}
    seen: dict[tuple[int, int], str] = {}
    for name in names:
        status = None
        with suppress(OSError):
            status = os.fstat(_INPUT) if name == STANDARD_INPUT else os.stat(name)  # noqa: PTH116
        if name != STANDARD_INPUT and not (status and stat.S_ISFIFO(status.st_mode)):
            continue
        path = name if name == STANDARD_INPUT else os.path.abspath(name)  # noqa: PTH100
        key = (status.st_dev, status.st_ino) if status else (0, 0)
        if (other := seen.setdefault(key, path)) != path or path in found.values():
            same = "is given twice" if other == path else f"is the same pipe as {other}"
            raise ConfigurationError(f"--file {name} {same}; give each input once")
        found[name] = path
    return found


def name_pipes(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return patterns, with each glob of one with braces by itself if a pipe has its name."""
    expanded = [(one, [one] if os.path.lexists(one) else expand_braces(one)) for one in patterns]
    return tuple(
        name for pattern, names in expanded for name in (names if find_inputs(names) else [pattern])
    )


class Input:
    """Standard input: a pipe, a terminal, a socket or a file, which may be non-blocking.

    `name` is for people, `path` is what lines are sent under. `is_kept`: what is left in it is
    there at the next start, while a writer holds it open.
    """

    name, path = "standard input", STANDARD_INPUT
    is_kept = False
    _descriptor = _INPUT
    _longest_wait: int | None = None  # milliseconds

    def __init__(self) -> None:
        """Open nothing yet."""
        self._is_pipe = False
        self._rest = b""
        self._wake = os.eventfd(0)

    def open(self) -> None:
        """Begin to read; raises OSError."""
        self._is_pipe = stat.S_ISFIFO(os.fstat(self._descriptor).st_mode)

    def wait(self) -> None:
        """Wait until bytes or an end can be read, for `wake`, or until it must be checked."""
        if self._rest:
            return
        poll = select.poll()
        for one in (self._descriptor, self._wake):
            poll.register(one, select.POLLIN)
        poll.poll(self._longest_wait)

    def wake(self) -> None:
        """Make `wait` return at once from now on."""
        os.eventfd_write(self._wake, 1)

    def move(self, target: int, position: int, most: int) -> int | None:
        """Move bytes to a position in a file; return how many: 0 at an end, None if none wait.

        Raises OSError for the file, `OperatorError` for the input.
        """
        try:
            if self._is_pipe:
                flags = os.SPLICE_F_NONBLOCK
                return os.splice(self._descriptor, target, most, offset_dst=position, flags=flags)
            self._rest = self._rest or self._read(min(most, CHUNK))
        except BlockingIOError:
            return None
        written = os.pwrite(target, self._rest[:most], position)
        self._rest = self._rest[written:]
        return written

    def _read(self, most: int) -> bytes:
        try:
            return os.read(self._descriptor, most)
        except BlockingIOError:
            raise
        except OSError as error:
            raise OperatorError(f"cannot be read: {error.strerror}") from None

    def has_ended(self) -> bool:
        """Return whether the end that `move` found is the last one; raises OSError."""
        return True

    @property
    def unread(self) -> int:
        """How many bytes of the input are in no file, as far as the kernel knows."""
        try:
            answer = fcntl.ioctl(self._descriptor, termios.FIONREAD, struct.pack("i", 0))
        except OSError:  # a device that does not know
            return len(self._rest)
        (waiting,) = struct.unpack("i", answer)
        return len(self._rest) + max(0, int(waiting))


class NamedPipe(Input):
    """A pipe with a name, whose writers come and go; with `once` it ends when they have gone."""

    is_kept = True
    _longest_wait = _CHECK_EVERY

    def __init__(self, path: str, *, once: bool) -> None:
        super().__init__()
        self.name = self.path = path
        self._ends = once

    def open(self) -> None:
        """Open the pipe; raises OSError."""
        self._descriptor = self._open()
        super().open()

    def _open(self) -> int:
        # non-blocking: without a writer it would wait for one
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is not a pipe any more", self.path)
        return descriptor

    def has_ended(self) -> bool:
        """Open the pipe that is at the path now: a descriptor reports an end until it is closed.

        What the next writers send is in the pipe while either descriptor is open.
        """
        if not self._ends:
            before, self._descriptor = self._descriptor, self._open()
            os.close(before)
        return self._ends
