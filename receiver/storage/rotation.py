"""When a segment is over, and what segments are called. Decides; asks no clock and touches no file.

Closed segments stand beside their live file, `<host>.log` as a rule, as `<host>.log.<number>`, numbers going up from
000001, with `.zst` or `.gz` behind when compressed. No live name can be a closed one's.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_LONGEST_STEM = 190  # bytes; a file name has 255, and what a template has beside a host, a mark and a number must fit
SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
"""Behind the name of a compressed segment, by method."""

_CLOSED = re.compile(r"(?P<live>.+)\.(?P<number>[0-9]{6,})(?P<suffix>\.zst|\.gz)?", re.DOTALL)


def stem_of(host: str) -> str:
    """Return the file name stem of a host: its name, cut when a file name cannot hold it.

    A cut name is marked with a digest behind two dots, which no host's own name holds.
    """
    encoded = host.encode()
    if len(encoded) <= _LONGEST_STEM:
        return host
    digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
    return f"{encoded[: _LONGEST_STEM - 25].decode(errors='ignore')}..{digest}"


def closed_name(live: str, number: int) -> str:
    """Return the name of a closed segment, not compressed."""
    return f"{live}.{number:06d}"


def parse_closed(name: str) -> tuple[str, int, str] | None:
    """Return live name, number and suffix of compression of a name that only closed segments may have; None for another."""
    found = _CLOSED.fullmatch(name)
    return (found["live"], int(found["number"]), found["suffix"] or "") if found else None


def live_of(name: str) -> str:
    """Return the name of the live file that a closed segment came from; any other name as it is."""
    closed = parse_closed(name)
    return closed[0] if closed else name


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A_MONDAY = datetime(1970, 1, 5)  # noqa: DTZ001 - by the clock on the wall, wherever that hangs
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 200_000_000_000_000_000_000  # nanoseconds; in the year 8307, which leaves room for periods of centuries


@dataclass(frozen=True, slots=True)
class Period:
    """The moments `[begin, end)`, in nanoseconds since the epoch, whose lines share a segment."""

    begin: int
    end: int


def load_zone(name: str) -> tzinfo:
    """Return a time zone by its name; UTC also where an executor's machine knows no zones."""
    return UTC if name == "UTC" else ZoneInfo(name)


@dataclass(eq=False, slots=True)
class Calendar:
    """Periods of a length, aligned to the wall clock of a zone; 0 is no periods.

    Lengths below a day are counted in time that has passed since local midnight, and the last of a day ends with it: `1h`
    begins at full hours, `7h` at 0, 7, 14 and 21, but for the day on which the clock is put forward or back. Longer ones
    count from a Monday's midnight by the clock: `1d` has 23 or 25 hours on such a day, `1w` begins on Mondays.
    """

    every: timedelta
    zone: tzinfo = UTC
    _last: Period = Period(0, 0)

    def period(self, moment: int) -> Period:
        """Return the period of a moment in nanoseconds since the epoch; as cheap as a comparison within the last one."""
        if not self._last.begin <= moment < self._last.end:
            self._last = self._found(min(max(moment, 0), _LATEST))
        return self._last

    def _found(self, moment: int) -> Period:
        if not self.every:
            return Period(0, 2**127)  # time rotates nothing
        local = (_EPOCH + timedelta(microseconds=moment // 1000)).astimezone(self.zone)
        wall = local.replace(tzinfo=None, fold=0)
        if self.every >= _DAY:
            start = _A_MONDAY + (wall - _A_MONDAY) // self.every * self.every
            return Period(self._moment(start), self._moment(start + self.every))
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        day, length = self._moment(midnight), self.every // _MICROSECOND * 1000
        begin = day + (moment - day) // length * length
        return Period(begin, min(begin + length, self._moment(midnight + _DAY)))

    def _moment(self, wall: datetime) -> int:
        # A time that the clock leaves out is the moment at which it is put forward.
        return (wall.replace(tzinfo=self.zone) - _EPOCH) // _MICROSECOND * 1000
