"""When the live files of a silent partition are to be turned: once after every period, and whenever somebody asks.

Only a silent partition is turned by the clock: while lines come, they turn their own files, and those of yesterday may
still be on their way.
"""

import asyncio
from collections.abc import Callable

from receiver.consume.assignment import Turn
from receiver.storage.calendar import Calendar

__all__ = ["Turns"]

_GRACE = 2_000_000_000  # nanoseconds that a period's last lines may be late, and clocks differ
_AGAIN = 60_000_000_000  # nanoseconds
_SILENCE = 2.0  # seconds
_LONGEST = 60.0  # seconds between looks at the clock, which may be set meanwhile


class Turns:
    """What one partition knows of turning."""

    def __init__(self, calendar: Calendar, clock: Callable[[], int]) -> None:
        """Wait for nothing yet; `clock` gives nanoseconds since the epoch."""
        self._calendar = calendar
        self._clock = clock
        self._until = 0
        self._next = Turn.DUE
        self.asked = asyncio.Event()
        """Set as long as somebody waits for every file to be turned, at the next batch boundary."""

    @property
    def is_due(self) -> bool:
        """Say whether the period is over in which files were turned last."""
        return self._clock() >= self._until

    def left(self) -> float:
        """Return how many seconds of silence make a turn due; the clock is to be looked at again then."""
        seconds = (self._until - self._clock()) / 1e9
        return float(min(max(seconds, _SILENCE), _LONGEST))

    def take(self, *, is_silent: bool) -> Turn:
        """Return what is to be done now, once; by the clock only when the partition is silent."""
        if self.asked.is_set():
            self.asked.clear()
            return Turn.ALL
        if not self.is_due or not (is_silent or self._next is Turn.ALL):
            return Turn.NONE
        turn, self._next = self._next, Turn.DUE
        self._until = self._calendar.period(self._clock() - _GRACE).end + _GRACE
        return turn

    def again(self, turn: Turn) -> None:
        """Have what could not be done tried again in a minute; receiving goes on meanwhile."""
        if turn is not Turn.NONE:
            self._next, self._until = turn, self._clock() + _AGAIN
