"""When the live files of a partition that gets no lines are closed: by the clock, or on request."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from nats_logship.app.timestamps import SECOND
from receiver.consume.assignment import ForcedRotation
from receiver.storage.rotation import Calendar

_GRACE = 2 * SECOND  # by which a period's last lines may be late, and clocks differ
_RETRY = 60 * SECOND
_LEAST_WAIT = 2.0  # seconds


@dataclass(slots=True)
class RotationTimer:
    """The timer of one partition: once after every period, and whenever `asked` is set.

    The clock closes files only while nothing comes. While lines come, the first line of a new
    period closes the files whose last line is older, by the broker's clock: lines of the last
    period may still be on their way. `clock` gives nanoseconds since the epoch. `asked` is set
    while somebody waits for all files to be closed at the end of the current batch.
    """

    calendar: Calendar
    clock: Callable[[], int]
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    _until: int = 0
    _next: ForcedRotation = ForcedRotation.DUE

    @property
    def is_due(self) -> bool:
        """Whether the period is over in which files were closed last."""
        return self.clock() >= self._until

    def seconds_left(self) -> float:
        """Return after how many seconds of silence the clock is to be read again."""
        return max((self._until - self.clock()) / SECOND, _LEAST_WAIT)

    def take(self, *, is_silent: bool) -> ForcedRotation:
        """Return the rotation to do now, and count it as done."""
        if self.asked.is_set():
            self.asked.clear()
            return ForcedRotation.ALL
        if not self.is_due or not (is_silent or self._next is ForcedRotation.ALL):
            return ForcedRotation.NONE
        rotation, self._next = self._next, ForcedRotation.DUE
        self._begin_period()
        return rotation

    def note_lines(self) -> None:
        """Note that lines came after the time was due: they have closed the older files."""
        if self.is_due and self._next is ForcedRotation.DUE:
            self._begin_period()

    def _begin_period(self) -> None:
        self._until = self.calendar.period(self.clock() - _GRACE).end + _GRACE

    def retry(self, rotation: ForcedRotation) -> None:
        """Schedule a rotation that has failed again in a minute; receiving goes on meanwhile."""
        if rotation is not ForcedRotation.NONE:
            self._next, self._until = rotation, self.clock() + _RETRY
