"""How records of our own log look and where they go: text for people and journald, or a JSON object for programs.

A record is one line, whatever the paths in it hold; only the traceback of a defect is more in text. journald takes
beside the text how bad it is (sd-daemon(3), systemd.exec(5)).
"""

import json
import logging
import os
from collections.abc import Mapping
from typing import Any, TextIO

from nats_logship.app.text import printable
from nats_logship.app.timestamps import format_time

_GRADES = (  # from the worst on; syslog(3)
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG = 7


def graded(level: int, text: str) -> str:
    """Return a text with the grade of a level of `logging` before each of its lines; journald takes that off again."""
    grade = next((grade for least, grade in _GRADES if level >= least), _DEBUG)
    return "\n".join(f"<{grade}>{line}" for line in text.split("\n"))


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, with their grade where that is the journal."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str]) -> None:
        super().__init__(stream)
        self._is_graded = is_journal(stream, environment)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        text = super().format(record)
        return graded(record.levelno, text) if self._is_graded else text


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is the one that systemd has connected to journald, and not one that it was sent to since."""
    try:
        there = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or a stream of a test's
        return False
    return environment.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


class TextLines(logging.Formatter):
    """`LEVEL subsystem: message`, without a time stamp, as journald adds its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        return f"{record.levelname} {_subsystem(record.name)}: {printable(record.message)}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the lines of a traceback, in which others' text may stand."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class JsonLines(logging.Formatter):
    """An object with `time` (RFC 3339, UTC), `level`, `logger` (the subsystem) and `message`; `exception` holds a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record; ASCII, so that no reader can take it wrongly."""
        entry = {
            "time": format_time(round(record.created * 1e6) * 1000),
            "level": record.levelname.lower(),
            "logger": _subsystem(record.name),
            "message": _whole(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = _whole(self.formatException(record.exc_info))
        return json.dumps(entry)


FORMATS: dict[str, type[logging.Formatter]] = {"text": TextLines, "json": JsonLines}


def _subsystem(logger: str) -> str:
    """Return the package of a logger within its program, as `publish` of `shipper.publish.publisher`; a name without dots as it is."""
    return logger.split(".")[1] if "." in logger else logger


def _whole(text: str) -> str:
    # half a surrogate pair, which stands for a byte that is not UTF-8, would be refused by strict parsers
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
