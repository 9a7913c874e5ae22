"""When rotation by time begins another segment, and what segments are called.

Decides only; asks no clock and touches no file. A closed segment is beside its live file: of
`web01.log` the segments are `web01.log.000001` and so on, with `.zst` or `.gz` if compressed. No
live file can have such a name.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_LONGEST_STEM = 190  # bytes; with a template's text, mark and number a name must fit 255
SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
"""By method of compression, the suffix of a compressed segment."""

_CLOSED = re.compile(r"(?P<live>.+)\.(?P<number>[0-9]{6,})(?P<suffix>\.zst|\.gz)?", re.DOTALL)


def make_stem(host: str) -> str:
    """Return the stem of a host's file name: the host's name, or its beginning and a digest.

    Two dots, which no host's name has in a row, separate the digest.
    """
    encoded = host.encode()
    if len(encoded) <= _LONGEST_STEM:
        return host
    digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
    return f"{encoded[: _LONGEST_STEM - 25].decode(errors='ignore')}..{digest}"


def name_segment(live: str, number: int) -> str:
    """Return the name of a closed segment that is not compressed."""
    return f"{live}.{number:06d}"


def parse_segment(name: str) -> tuple[str, int, str] | None:
    """Return live name, number and suffix of compression of a segment's name.

    Returns None for a name that no segment has.
    """
    found = _CLOSED.fullmatch(name)
    return (found["live"], int(found["number"]), found["suffix"] or "") if found else None


def find_live_name(name: str) -> str:
    """Return the name of a segment's live file, and any other name as it is."""
    closed = parse_segment(name)
    return closed[0] if closed else name


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A_MONDAY = datetime(1970, 1, 5)  # noqa: DTZ001 - by the clock of any zone
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 200_000_000_000_000_000_000  # ns, in the year 8307; periods of centuries end in time


@dataclass(frozen=True, slots=True)
class Period:
    """The moments `[begin, end)`, in nanoseconds since the epoch, whose lines share a segment."""

    begin: int
    end: int


def load_zone(name: str) -> tzinfo:
    """Return a time zone by its name; UTC needs no database of zones."""
    return UTC if name == "UTC" else ZoneInfo(name)


@dataclass(eq=False, slots=True)
class Calendar:
    """Periods of one length, aligned to the clock of a zone; length 0 means no periods.

    Lengths below a day count elapsed time since local midnight, and midnight ends the last one:
    `7h` begins at 0, 7, 14 and 21 o'clock, except on days on which the clock changes. Longer
    lengths count days by the clock from a Monday: `1d` has 23 or 25 hours on such a day, `1w`
    begins on Mondays.
    """

    every: timedelta
    zone: tzinfo = UTC
    _last: Period = Period(0, 0)

    def period(self, moment: int) -> Period:
        """Return the period of a moment in nanoseconds since the epoch; cheap within the last."""
        if not self._last.begin <= moment < self._last.end:
            self._last = self._compute(min(max(moment, 0), _LATEST))
        return self._last

    def _compute(self, moment: int) -> Period:
        if not self.every:
            return Period(0, 2**127)
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
        # a time that the clock skips is the moment at which the clock is put forward
        return (wall.replace(tzinfo=self.zone) - _EPOCH) // _MICROSECOND * 1000
