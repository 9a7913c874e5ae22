"""Programs on a terminal of their own, as a person starts them."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer

_COLUMNS = 120
_SIZE = "COLUMNS", "LINES"  # pytest-xdist sets them, and they hide the terminal's own size


def run_on_terminal(
    command: Sequence[str | Path],
    seconds: float = 120,
    environment: Mapping[str, str] | None = None,
    columns: int = _COLUMNS,
) -> tuple[int, str]:
    """Run a command in the foreground of a new terminal; return its exit code and all it wrote.

    A command that takes more than `seconds` is killed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in _SIZE}
    program = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, **(environment or {})},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    alarm = Timer(seconds, program.kill)
    alarm.start()
    written = b""
    with suppress(OSError):  # EIO: the last program on the terminal has ended
        while data := os.read(ours, 65536):
            written += data
    code = program.wait()
    alarm.cancel()
    os.close(ours)
    return code, written.decode().replace("\r\n", "\n")


def shown_at_the_end(written: str) -> list[str]:
    """Return the lines that stay on the terminal: text that was written over is not among them."""
    return [line.rpartition("\r\x1b[K")[2] for line in written.rstrip("\n").split("\n")]
