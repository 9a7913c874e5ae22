"""Passes on so many lines a minute of what anybody may provoke in nats-server's log.

nats-server logs a line for each message that it denies, each failed attempt to get in, and each
malformed request. How many were left out is one line at the end of a minute.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable

OF_CONNECTION = re.compile(r"(?P<connection>(?P<address>\S+):\d+ - [cwmrgl]id(?:_ws)?:\d+) - ")
"""How a line about a connection begins: "127.0.0.1:1234 - cid:5 - …".

The letters: client, websocket, MQTT, route, gateway, leaf node.
"""

_WINDOW = 60.0  # seconds
_MOST_OF_CONNECTION, _MOST_OF_ADDRESS, _MOST_OF_SERVER = 10, 100, 500  # lines in a window
_MOST_KEYS = 10_000  # connections and addresses that are told apart


class LogLimit:
    """Counts lines by connection and by address.

    `report` is given a line for what was left out, at the end of each minute.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        """Begin a window with the first line."""
        self._report = report
        self._lines = Counter[str]()
        self._left_out = Counter[str]()
        self._end: asyncio.TimerHandle | None = None

    def takes(self, level: int, line: str) -> bool:
        """Whether a line may be passed on; counts it.

        What anybody provokes at one level leaves out none of the server's own lines at another one.
        """
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(_WINDOW, self.flush)
        found = OF_CONNECTION.match(line)
        if found is None:
            name = f"nats-server, {logging.getLevelName(level)}"
            return self._is_within(name, _MOST_OF_SERVER)
        connection, address = found["connection"], found["address"]
        if connection not in self._lines and len(self._lines) >= _MOST_KEYS:
            connection = address  # too many to be told apart
        is_within = self._is_within(connection, _MOST_OF_CONNECTION)
        return is_within and self._is_within(address, _MOST_OF_ADDRESS)

    def _is_within(self, key: str, most: int) -> bool:
        self._lines[key] += 1
        if self._lines[key] <= most:
            return True
        self._left_out[key] += 1
        return False

    def flush(self) -> None:
        """Report what was left out, and begin a new window."""
        if self._end is not None:
            self._end.cancel()
        for key, left in self._left_out.items():
            self._report(f"{key} - {left} more lines were left out of this log")
        self._end = None
        self._lines.clear()
        self._left_out.clear()
