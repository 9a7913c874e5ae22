"""What nats-server says of itself: its log lines taken apart, and what its last words mean for a person."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

__all__ = ["Level", "News", "Said", "explain", "read_line", "what"]


class Level(IntEnum):
    """How serious a line is; the numbers are those of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
    FATAL = 50


_LINE = re.compile(r"\[\d+\] (?:\S+ \S+ )?\[(?P<level>[A-Z]{3})\] ?(?P<text>.*)")
_LEVELS = {
    "TRC": Level.DEBUG,
    "DBG": Level.DEBUG,
    "INF": Level.INFO,
    "WRN": Level.WARNING,
    "ERR": Level.ERROR,
    "FTL": Level.FATAL,
}
_IN_USE = re.compile(r"listen tcp (?P<address>\S+): bind: address already in use")
_NO_BIND = re.compile(r"listen tcp (?P<address>\S+): (?:bind: )?(?P<reason>.+?)\"?$")
_TROUBLE = re.compile(r"^(panic|fatal error|nats-server): ")


@dataclass(frozen=True, slots=True)
class Said:
    """A log line of nats-server."""

    level: Level
    text: str


def read_line(line: str) -> Said:
    """Take a line apart; one in no known form (a Go panic, a usage error) is an error when it begins like one."""
    found = _LINE.match(line)
    if found is None:
        return Said(Level.ERROR if _TROUBLE.match(line) else Level.INFO, line)
    return Said(_LEVELS.get(found["level"], Level.INFO), found["text"])


class News(Enum):
    """What a line tells that somebody waits for."""

    NOTHING = "nothing"
    COMMIT = "Git: "
    RELOADED = "Reloaded server configuration"
    NOT_RELOADED = "Failed to reload server configuration"
    FAILED_WRITE = "ritical write error"
    READY = "Server is ready"
    CANNOT_DECRYPT = "Error decrypting our stream metafile"
    CLOSING = "Closing existing clients"


def what(said: Said) -> News:
    """Return what a line tells; the texts are those of 2.15."""
    return next(
        (news for news in News if news is not News.NOTHING and news.value in said.text),
        News.NOTHING,
    )


def explain(said: Sequence[Said]) -> str:
    """Return, in one line, why nats-server ended, from its last words; empty when they complain of nothing."""
    troubles = [one.text for one in said if one.level >= Level.ERROR]
    for text in troubles:
        if found := _IN_USE.search(text):
            return (
                f"{found['address']} is in use by another program; "
                "stop that one, or choose another --listen or --http"
            )
        if found := _NO_BIND.search(text):
            return (
                f"cannot listen on {found['address']}: {found['reason']}; check --listen and --http"
            )
    return troubles[-1] if troubles else ""
