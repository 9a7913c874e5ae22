"""Runs `journalctl` for the entries of one journal, and reads what it prints.

It prints what there is, and ends. It prints no more than the pipe holds until that is read; if its
reader is killed, its next write ends it. What it has started itself ends with it.
"""

import errno
import fcntl
import glob
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

PROGRAM = "journalctl"
_PIPE = 1024 * 1024  # bytes that wait for the agent
_INTERVAL = 0.002  # seconds
_MOST_ERRORS = 4096  # bytes of messages on stderr
_READS = 32  # of messages, at a time: a program that writes them without an end is not waited for
_UNOPENED = "Failed to open files: "
_ENDING = 10.0  # seconds for its end, after it has closed its output
_KILLED = 3.0  # seconds for its end, after it was killed
_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_COLORS": "0"}
# without debugging messages, and errors where they are looked for
_ENVIRONMENT |= {"SYSTEMD_LOG_LEVEL": "info", "SYSTEMD_LOG_TARGET": "console"}
logger = logging.getLogger(__name__)


def command(fields: Sequence[str], journal: str, number: int, files: Iterable[str]) -> list[str]:
    """Return the command that prints the entries of a journal from a number on.

    `files` are all files of that journal that have such entries. Without `fields` all are printed.
    """
    return [
        *(PROGRAM, "--quiet", "--no-pager", "--all", "--output=export"),
        *([f"--output-fields={','.join(fields)}"] if fields else []),
        f"--cursor=s={journal};i={number:x}",
        *_name_files(files),
    ]


def _name_files(paths: Iterable[str]) -> list[str]:
    return [f"--file={glob.escape(path)}" for path in paths]


def find_unopenable(paths: Sequence[str]) -> dict[str, str]:
    """Return why `journalctl` cannot open which of these files: it prints none if one is bad."""
    try:
        run = Run([PROGRAM, "--quiet", "--no-pager", "--lines=0", *_name_files(paths)])
    except OSError:
        return {}
    reason = run.finish()[0].partition(_UNOPENED)[2]
    if not reason or len(paths) == 1:
        return {path: reason for path in paths if reason}
    half = len(paths) // 2
    return find_unopenable(paths[:half]) | find_unopenable(paths[half:])


class Run:
    """A `journalctl` that runs.

    One that waits for a dying disk does not end when it is killed. It is left behind, and no other
    one begins before it has ended.
    """

    _left: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start it; raises OSError if it is absent or cannot be run now."""
        if any(one.poll() is None for one in self._left):
            raise OSError(errno.EBUSY, "the one before was killed and has not ended")
        self._left.clear()
        self._process = subprocess.Popen(
            arguments,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | _ENVIRONMENT,
            start_new_session=True,
        )
        self._pipes = [one for one in (self._process.stdout, self._process.stderr) if one]
        self.output, self._errors = (one.fileno() for one in self._pipes)
        with suppress(OSError):  # more than the system grants
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _PIPE)
        for one in (self.output, self._errors):
            os.set_blocking(one, False)
        self._reported = b""
        self._printed_at = time.monotonic()

    @property
    def silence(self) -> float:
        """The seconds since it has last printed something."""
        return time.monotonic() - self._printed_at

    def read(self, size: int, patience: float) -> bytes | None:
        """Return about `size` bytes, or what comes within the patience (seconds).

        Empty at the end; None if nothing comes.
        """
        parts, until = list[bytes](), time.monotonic() + patience
        while size > 0:
            try:
                parts.append(os.read(self.output, size))
            except BlockingIOError:
                self._read_errors()
                if time.monotonic() >= until:
                    break
                # journalctl writes 4 KiB at a time
                time.sleep(_INTERVAL)
                continue
            if not parts[-1]:
                break
            size -= len(parts[-1])
        if not parts:
            return None
        self._printed_at = time.monotonic()
        return b"".join(parts)

    def _read_errors(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(_READS):
                if not (data := os.read(self._errors, _MOST_ERRORS)):
                    break
                self._reported = (self._reported + data)[:_MOST_ERRORS]

    def finish(self) -> tuple[str, list[str]]:
        """Wait for its end; return why it failed, empty if it did not, and what it has reported."""
        until = time.monotonic() + _ENDING
        while not self._has_ended() and time.monotonic() < until:
            time.sleep(_INTERVAL)
        code = self._end()
        self._read_errors()
        self._close()
        lines = self._reported.decode("utf-8", "replace").splitlines()
        if not code:
            return "", lines
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        return f"{PROGRAM} {how}{': ' if lines else ''}{'; '.join(lines[-3:])}", []

    def kill(self) -> None:
        """End it at once."""
        self._end()
        self._close()

    def _has_ended(self) -> bool:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, how) is not None

    def _end(self) -> int:
        """End it and all that it has started; return its code."""
        with suppress(PermissionError, ProcessLookupError):
            # its number is not another group's before `wait`
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            return self._process.wait(_KILLED)
        except subprocess.TimeoutExpired:
            self._left.append(self._process)
            text = "%s, process %d, was killed and does not end: its disk may be dying"
            logger.warning(text, PROGRAM, self._process.pid)
            return -signal.SIGKILL

    def _close(self) -> None:
        for one in self._pipes:
            one.close()
