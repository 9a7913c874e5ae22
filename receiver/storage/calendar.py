"""Which period of rotation a moment lies in, by the clock of a time zone. Decides; asks no clock and reads no file."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

__all__ = ["ALWAYS", "Calendar", "Period"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A_MONDAY = datetime(1970, 1, 5)  # noqa: DTZ001 - by the clock on the wall, wherever that hangs
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 200_000_000_000_000_000_000  # nanoseconds; in the year 8307, which leaves room for periods of centuries


@dataclass(frozen=True, slots=True)
class Period:
    """The moments `[begin, end)`, in nanoseconds since the epoch, whose lines share a segment."""

    begin: int
    end: int


ALWAYS = Period(0, 2**127)
"""What every moment lies in when time rotates nothing."""


class Calendar:
    """Periods of a length, aligned to the wall clock of a zone; 0 is no periods.

    Lengths below a day count from local midnight, and the last of a day ends with it: `1h` begins at full hours, `6h` at
    0, 6, 12 and 18, `7h` at 0, 7, 14 and 21. Longer ones count from a Monday's midnight: `1d` has 23 or 25 hours where
    the clock is put forward or back, `1w` begins on Mondays. What is no longer than an hour is counted in time that
    has passed, so that the hour that comes twice is two.
    """

    def __init__(self, every: timedelta, zone: tzinfo = UTC) -> None:
        """Know no period yet."""
        self._every = every
        self._zone = zone
        self._last = Period(0, 0) if every else ALWAYS

    def period(self, moment: int) -> Period:
        """Return the period of a moment in nanoseconds since the epoch; as cheap as a comparison within the last one."""
        if not self._last.begin <= moment < self._last.end:
            self._last = self._found(min(max(moment, 0), _LATEST))
        return self._last

    def _found(self, moment: int) -> Period:
        local = (_EPOCH + timedelta(microseconds=moment // 1000)).astimezone(self._zone)
        wall = local.replace(tzinfo=None, fold=0)
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        anchor = midnight if self._every < _DAY else _A_MONDAY
        start = anchor + (wall - anchor) // self._every * self._every
        stop = start + self._every
        if self._every < _DAY:
            stop = min(stop, midnight + _DAY)
        if self._every > _HOUR:
            return Period(self._moment(start), self._moment(stop))
        begin, stopped = (self._moment(edge, local.fold) for edge in (start, stop))
        end = min(stopped, begin + self._every // _MICROSECOND * 1000)
        # An hour in which the clock is put back by less is cut there; what follows is a period of its own.
        return Period(begin, end) if moment < end else Period(end, stopped)

    def _moment(self, wall: datetime, fold: int = 0) -> int:
        # A time that the clock leaves out is the moment at which it is put forward.
        return (wall.replace(tzinfo=self._zone, fold=fold) - _EPOCH) // _MICROSECOND * 1000
