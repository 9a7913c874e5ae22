"""What nats-server says of itself: its log lines taken apart, and what its last words mean for a person.

It writes what clients send into its log: an nkey, a user, a name, an unknown field of a request. So a phrase of the server's
counts only at the beginning of a line that is about no connection, at the level at which the server says it.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from broker.app.untrusted import printable

__all__ = ["ERROR", "FATAL", "LogLine", "ServerNotice", "explain", "notice_in", "read_line"]

DEBUG, INFO, WARNING, ERROR, FATAL = 10, 20, 30, 40, 50
"""How serious a line is: the numbers are those of Python's logging."""
_LINE = re.compile(r"\[\d+\] (?:\S+ \S+ )?\[(?P<level>[A-Z]{3})\] ?(?P<text>.*)")
_LEVELS = {"TRC": DEBUG, "DBG": DEBUG, "INF": INFO, "WRN": WARNING, "ERR": ERROR, "FTL": FATAL}
# "127.0.0.1:1234 - cid:5 - …" of a client; by letter: websocket, MQTT, route, gateway, leaf node
_OF_CONNECTION = re.compile(r"\S+ - [cwmrgl]id(?:_ws)?:\d+ - ")
_NOT_LISTENING = re.compile(r"listen tcp (?P<address>\S+): (?:bind: )?(?P<reason>.+?)\"?$")
_TROUBLE = re.compile(r"^(panic|fatal error|nats-server): ")


class LogLine(NamedTuple):
    """A log line of nats-server."""

    level: int
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
        return LogLine(ERROR if _TROUBLE.match(line) else DEBUG, line)
    return LogLine(_LEVELS.get(found["level"], INFO), found["text"])


class ServerNotice(Enum):
    """What logbroker waits for in the log: at which level nats-server (2.15) logs it, and how the line begins."""

    MONITORS = (INFO, "Starting http monitor on ")
    LISTENS = (INFO, "Listening for client connections on ")
    READY = (INFO, "Server is ready")
    RELOADED = (INFO, "Reloaded server configuration")
    NOT_RELOADED = (ERROR, "Failed to reload server configuration: ")
    CANNOT_DECRYPT = (WARNING, "  Error decrypting our stream metafile: ")
    CLOSING = (INFO, "Closing existing clients")


def notice_in(line: LogLine) -> ServerNotice | None:
    """Return what logbroker waits for in a line, if anything."""
    for notice in ServerNotice:
        level, begins = notice.value
        if line.level == level and line.text.startswith(begins):
            return notice
    return None


def explain(lines: Iterable[LogLine]) -> str:
    """Return, in one line, why nats-server ended, from its last log lines; empty when they hold no error.

    Lines about connections are no reason: any client can have such a line written.
    """
    troubles = [one for one in lines if one.level >= ERROR and not one.is_of_connection]
    for one in troubles:
        if one.level == FATAL and (found := _NOT_LISTENING.search(one.text)):
            return f"cannot listen on {found['address']}: {found['reason']}; choose another --listen or --http"
    return troubles[-1].text if troubles else ""
