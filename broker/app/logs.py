"""How records of our own log look: text for people and journald, or a JSON object for programs.

A record is one line, whatever the paths in it hold; only the traceback of a defect is more in text.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from broker.app.untrusted import printable


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
        moment = datetime.fromtimestamp(record.created, UTC)
        entry = {
            "time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": _subsystem(record.name),
            "message": _whole(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = _whole(self.formatException(record.exc_info))
        return json.dumps(entry)


FORMATS: dict[str, type[logging.Formatter]] = {"text": TextLines, "json": JsonLines}


def _subsystem(logger: str) -> str:
    """Return the package of a logger within its program, as `publish` of `shipper.publish.session`; a name without dots as it is."""
    return logger.split(".")[1] if "." in logger else logger


def _whole(text: str) -> str:
    # half a surrogate pair, which stands for a byte that is not UTF-8, would be refused by strict parsers
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
