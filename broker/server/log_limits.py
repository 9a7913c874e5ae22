"""Limits how many lines clients can cause in nats-server's log.

nats-server logs a line for each denied message, each failed login and each malformed request.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable

CONNECTION_LINE = re.compile(r"(?P<connection>(?P<address>\S+):\d+ - [cwmrgl]id(?:_ws)?:\d+) - ")
"""The beginning of a line about a connection: "127.0.0.1:1234 - cid:5 - …".

The letters: client, websocket, MQTT, route, gateway, leaf node.
"""

_REPEATED = 300.0  # seconds
_LONGEST = 300  # characters of a line by which it is compared with others
_MOST_REPORTED = 100  # lines at the end of the five minutes
_WINDOW = 60.0  # seconds
_MOST_OF_CONNECTION, _MOST_OF_ADDRESS, _MOST_OF_SERVER = 10, 100, 500  # lines in a window
_MOST_KEYS = 10_000  # connections and addresses that are counted separately


class Repeats:
    """Passes on a line about a connection once in five minutes, for each address, and counts.

    A client that is refused connects again and again. Then `report` gets a line with the count.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        """Begin with the first line."""
        self._report = report
        self._counts = Counter[str]()
        self._end: asyncio.TimerHandle | None = None

    def admit(self, line: str) -> bool:
        """Count a line, and return whether it is to be passed on."""
        if (found := CONNECTION_LINE.match(line)) is None:
            return True
        key = f"{found['address']} - {line[found.end() :]}"[:_LONGEST]
        if key not in self._counts and len(self._counts) >= _MOST_KEYS:
            return True
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(_REPEATED, self.flush)
        self._counts[key] += 1
        return self._counts[key] == 1

    def flush(self) -> None:
        """Report the counts, and pass each line on again."""
        if self._end is not None:
            self._end.cancel()
        for key, count in self._counts.most_common(_MOST_REPORTED):
            if count > 1:
                self._report(f"{key} - {count - 1} more times in {_REPEATED / 60:.0f} min")
        self._end = None
        self._counts.clear()


class LogLimit:
    """Counts lines by connection and by address.

    At the end of each minute `report` gets a line for each that has exceeded its limit.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        """Begin a window with the first line."""
        self._report = report
        self._lines = Counter[str]()
        self._left_out = Counter[str]()
        self._end: asyncio.TimerHandle | None = None

    def admit(self, level: int, line: str) -> bool:
        """Count a line, and return whether it may be passed on.

        The server's own lines are counted by level: a flood at one level hides no other level.
        """
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(_WINDOW, self.flush)
        found = CONNECTION_LINE.match(line)
        if found is None:
            name = f"nats-server, {logging.getLevelName(level)}"
            return self._count(name, _MOST_OF_SERVER)
        connection, address = found["connection"], found["address"]
        if connection not in self._lines and len(self._lines) >= _MOST_KEYS:
            connection = address  # too many to count separately
        is_within = self._count(connection, _MOST_OF_CONNECTION)
        return is_within and self._count(address, _MOST_OF_ADDRESS)

    def _count(self, key: str, most: int) -> bool:
        self._lines[key] += 1
        if self._lines[key] <= most:
            return True
        self._left_out[key] += 1
        return False

    def flush(self) -> None:
        """Report how many lines were left out, and begin a new window."""
        if self._end is not None:
            self._end.cancel()
        for key, left in self._left_out.items():
            self._report(f"{key} - {left} more lines were left out of this log")
        self._end = None
        self._lines.clear()
        self._left_out.clear()
