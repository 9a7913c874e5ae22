"""What journald takes beside the text of a line: how bad it is (sd-daemon(3), systemd.exec(5)); looks where a log goes."""

import logging
import os
from collections.abc import Mapping
from typing import TextIO

__all__ = ["JournalHandler", "graded", "handler_for", "is_journal"]

_GRADES = (  # from the worst on; syslog(3)
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG = 7


class JournalHandler(logging.StreamHandler[TextIO]):
    """Writes records for journald, each of their lines with its grade before it; journald takes that off again."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return graded(record.levelno, super().format(record))


def graded(level: int, text: str) -> str:
    """Return a text with the grade of a level of `logging` before each of its lines."""
    grade = next((grade for least, grade in _GRADES if level >= least), _DEBUG)
    return "\n".join(f"<{grade}>{line}" for line in text.split("\n"))


def handler_for(stream: TextIO, environment: Mapping[str, str]) -> logging.StreamHandler[TextIO]:
    """Return a handler that writes to a stream what is wanted there."""
    return (
        JournalHandler(stream) if is_journal(stream, environment) else logging.StreamHandler(stream)
    )


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is the one that systemd has connected to journald, and not one that it was sent to since."""
    try:
        there = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or a stream of a test's
        return False
    return environment.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"
