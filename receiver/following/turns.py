"""When the live files of a silent partition are to be turned: once after every period, and whenever somebody asks.

Only a silent partition is turned by the clock: while lines come, they turn their own files, and those of yesterday may
still be on their way.
"""

import asyncio
from collections.abc import Callable

from receiver.assignment import Turn
from receiver.writing.calendar import Calendar

__all__ = ["Turns"]

_GRACE = (
    2_000_000_000  # nanoseconds after a period's end, for its last lines and clocks that differ
)
_LONGEST = 60.0  # seconds between looks at the clock, which may be set meanwhile


class Turns:
    """What one partition knows of turning."""

    def __init__(self, calendar: Calendar | None, clock: Callable[[], int]) -> None:
        """Wait for nothing yet; `clock` gives nanoseconds since the epoch. Without a calendar only asking counts."""
        self._calendar = calendar
        self._clock = clock
        self._asked = asyncio.Event()
        self._until = 0

    def ask(self) -> None:
        """Have every file turned at the next batch boundary."""
        self._asked.set()

    def take(self, *, is_silent: bool) -> Turn:
        """Return what is to be done now, once; by the clock only when the partition is silent."""
        now = self._clock()
        if is_silent and self._calendar and now >= self._until:
            self._until = self._calendar.period(now - _GRACE).end + _GRACE
            if not self._asked.is_set():
                return Turn.DUE
        if self._asked.is_set():
            self._asked.clear()
            return Turn.ALL
        return Turn.NONE

    def again(self, turn: Turn) -> None:
        """Take back what could not be done."""
        if turn is Turn.ALL:
            self._asked.set()
        elif turn is Turn.DUE:
            self._until = 0

    async def wait(self) -> None:
        """Return when there is something to take for a silent partition."""
        while not self._asked.is_set():
            left = _LONGEST
            if self._calendar:
                left = min(left, (self._until - self._clock()) / 1e9)
                if left <= 0:
                    return
            try:
                await asyncio.wait_for(self._asked.wait(), left)
            except TimeoutError:
                continue
