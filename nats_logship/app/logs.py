"""The form of our own log: text for people and journald, or one JSON object for each record.

A text record is one line, whatever a path in it holds; only a traceback has more. For journald each
line begins with its priority (sd-daemon(3), systemd.exec(5)), on a terminal with the local time.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any, TextIO

from nats_logship.app.progress import TERMINAL
from nats_logship.app.text import printable
from nats_logship.app.timestamps import format_time

_PRIORITIES = (  # highest first; syslog(3)
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG = 7


def add_priority(level: int, text: str) -> str:
    """Return a text with the priority of a level of `logging` before each line."""
    priority = next((priority for least, priority in _PRIORITIES if level >= least), _DEBUG)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream: to the journal with their priority, to a terminal with a time."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str]) -> None:
        super().__init__(stream)
        self._is_journal = is_journal(stream, environment)
        self._is_terminal = stream.isatty()

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        text = super().format(record)
        if self._is_terminal and not isinstance(self.formatter, JsonLines):
            text = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.created))} {text}"
        return add_priority(record.levelno, text) if self._is_journal else text

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; a line of progress goes below it."""
        with TERMINAL.above():
            super().emit(record)


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is the one that systemd connected to journald."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or a stream of a test
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class TextLines(logging.Formatter):
    """`LEVEL subsystem: message`."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        return f"{record.levelname} {_subsystem(record.name)}: {printable(record.message)}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the lines of a traceback, which may hold text of others."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class JsonLines(logging.Formatter):
    """`time` (RFC 3339, UTC), `level`, `logger` (the subsystem), `message`, perhaps `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record in ASCII."""
        entry = {
            "time": format_time(round(record.created * 1e6) * 1000),
            "level": record.levelname.lower(),
            "logger": _subsystem(record.name),
            "message": _valid(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = _valid(self.formatException(record.exc_info))
        return json.dumps(entry)


FORMATS: dict[str, type[logging.Formatter]] = {"text": TextLines, "json": JsonLines}


def _subsystem(logger: str) -> str:
    """Return the package within a program, such as `publish` of `shipper.publish.publisher`."""
    return logger.split(".")[1] if "." in logger else logger


def _valid(text: str) -> str:
    # strict parsers refuse half a surrogate pair, which is a byte that is not UTF-8
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
