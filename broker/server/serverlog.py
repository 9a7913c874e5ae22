"""What nats-server says of itself: its log lines taken apart, and what its last words mean for a person.

It writes what clients send into its log: an nkey, a user, a name, an unknown field of a request. So a phrase of the server's
counts only at the beginning of a line that is about no connection, at the level at which the server says it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from broker.app.untrusted import printable

__all__ = ["Level", "LogLine", "ServerNotice", "explain", "notice_in", "read_line"]


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
# "127.0.0.1:1234 - cid:5 - …" of a client; by letter: websocket, MQTT, route, gateway, leaf node
_OF_CONNECTION = re.compile(r"\S+ - [cwmrgl]id(?:_ws)?:\d+ - ")
_IN_USE = re.compile(r"listen tcp (?P<address>\S+): bind: address already in use")
_NO_BIND = re.compile(r"listen tcp (?P<address>\S+): (?:bind: )?(?P<reason>.+?)\"?$")
_TROUBLE = re.compile(r"^(panic|fatal error|nats-server): ")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line of nats-server."""

    level: Level
    text: str

    @property
    def is_of_connection(self) -> bool:
        """Whether the line is about a client or another server, who may have chosen the words."""
        return _OF_CONNECTION.match(self.text) is not None


def read_line(line: str) -> LogLine:
    """Take a line apart; one in no known form (a Go panic, a usage error) is an error when it begins like one.

    Control characters become escapes: the line is shown to people.
    """
    line = printable(line)
    found = _LINE.match(line)
    if found is None:
        return LogLine(Level.ERROR if _TROUBLE.match(line) else Level.DEBUG, line)
    return LogLine(_LEVELS.get(found["level"], Level.INFO), found["text"])


class ServerNotice(Enum):
    """What logbroker waits for in the log: at which level nats-server (2.15) logs it, and how the line begins."""

    COMMIT = (Level.INFO, "  Git:      [")
    RELOADED = (Level.INFO, "Reloaded server configuration")
    NOT_RELOADED = (Level.ERROR, "Failed to reload server configuration: ")
    READY = (Level.INFO, "Server is ready")
    CANNOT_DECRYPT = (Level.WARNING, "  Error decrypting our stream metafile: ")
    CLOSING = (Level.INFO, "Closing existing clients")


def notice_in(line: LogLine) -> ServerNotice | None:
    """Return what logbroker waits for in a line, if anything."""
    return next(
        (
            notice
            for notice in ServerNotice
            if line.level == notice.value[0] and line.text.startswith(notice.value[1])
        ),
        None,
    )


def explain(lines: Sequence[LogLine]) -> str:
    """Return, in one line, why nats-server ended, from its last log lines; empty when they hold no error.

    Lines about connections are no reason: any client can have such a line written.
    """
    troubles = [one for one in lines if one.level >= Level.ERROR and not one.is_of_connection]
    for one in troubles:
        if one.level == Level.FATAL and (reason := _no_listening(one.text)):
            return reason
    return troubles[-1].text if troubles else ""


def _no_listening(text: str) -> str:
    if found := _IN_USE.search(text):
        return (
            f"{found['address']} is in use by another program; "
            "stop that one, or choose another --listen or --http"
        )
    if found := _NO_BIND.search(text):
        return f"cannot listen on {found['address']}: {found['reason']}; check --listen and --http"
    return ""
