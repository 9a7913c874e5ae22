"""A program that logs numbered lines until SIGTERM, by itself or by one of Python's handlers.

It runs as `python -I numbered_writer.py HOW HOST PATH COUNT`, without any other module of ours. At
its end it writes into the file COUNT how many lines it has written.
"""

import logging
import logging.handlers
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PAUSE = 0.005  # seconds between two lines
_BYTES = 16_000  # of a file of `RotatingFileHandler`
_KEPT = 50  # rotated files

Write = Callable[[str], object]


def line_of(host: str, number: int) -> str:
    """Return a line of a host, without its newline; no two lines of all hosts are equal."""
    return f"{host} {number:07d} {'.' * (number % 60)}"


class _Appender:
    """Appends to a path, which it opens again after SIGHUP."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()
        signal.signal(signal.SIGHUP, self._hang_up)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._is_stale = False

    def _hang_up(self, *_: object) -> None:
        self._is_stale = True

    def write(self, line: str) -> None:
        if self._is_stale:
            os.close(self._file)
            self._open()
        os.write(self._file, f"{line}\n".encode())


def _logging_by(handler: logging.Handler) -> Write:
    logger = logging.getLogger("numbered")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    return logger.info


def _writer(how: str, path: str) -> Write:
    handlers = logging.handlers
    match how:
        case "append":
            return _Appender(path).write
        case "stdout":
            return lambda line: os.write(1, f"{line}\n".encode())
        case "watched":
            return _logging_by(handlers.WatchedFileHandler(path))
        case "rotating":
            return _logging_by(handlers.RotatingFileHandler(path, "a", _BYTES, _KEPT))
        case "timed":
            return _logging_by(handlers.TimedRotatingFileHandler(path, "S", 1, _KEPT))
    raise ValueError(how)


def _main(how: str, host: str, path: str, count: str) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    write, number = _writer(how, path), 0
    while not ended:
        write(line_of(host, number))
        number += 1
        time.sleep(_PAUSE)
    Path(count).write_text(str(number), "ascii")


if __name__ == "__main__":
    _main(*sys.argv[1:])
