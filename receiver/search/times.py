"""The times that lines of received files name: the files do not say when a line was stored."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.app.timestamps import to_datetime
from nats_logship.client.found_lines import count_lines
from receiver.table.line_time import read_times

_SEARCHED = 128  # bytes of a line
_CLOCK = (  # the first one of a line, with its zone
    r"(?:^|[T :])[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2}| [+-][0-9]{4}\])?"
)
_HAS_CLOCK = re.compile(rb"[0-9]{2}:[0-9]{2}:[0-9]{2}")
_ZONES = timedelta(hours=-12), timedelta(hours=14)  # the clocks that are behind and ahead of UTC
_CHANGE = timedelta(hours=3)  # a clock is changed by less
_QUARTER = timedelta(minutes=15) // timedelta.resolution  # offsets of zones are multiples of it


@dataclass(frozen=True, slots=True)
class LineTimes:
    """The times of the lines of a file; a line without one has that of the line before.

    `stored_at` is when the last line was stored, in nanoseconds: it says the year where lines do
    not. `zone` is that of times which name none; None is any zone.
    """

    stored_at: int
    zone: tzinfo | None

    def is_between(self, since: int | None, until: int | None) -> Callable[[pa.Array], pa.Array]:
        """Return a function that says which lines may be between two times in nanoseconds.

        It is called with all lines in their order. Lines before the first time are wanted.
        """
        last = True

        def find(lines: pa.Array) -> pa.Array:
            nonlocal last
            times, has_zone = self.read(lines)
            is_in_time = pa.repeat(True, len(lines))  # null where a line has no time
            if since is not None:
                first = pc.if_else(has_zone, since // 1000, self._to_local(since, min))
                is_in_time = pc.and_(is_in_time, pc.greater_equal(times, first))
            if until is not None:
                end = pc.if_else(has_zone, until // 1000, self._to_local(until, max))
                is_in_time = pc.and_(is_in_time, pc.less(times, end))
            is_in_time = pc.fill_null(pc.fill_null_forward(is_in_time), last)
            last = is_in_time[-1].as_py()
            return is_in_time

        return find

    def read(self, lines: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the times in microseconds, None for none, and which of them have a zone."""
        stored_at = pa.scalar(self.stored_at // 1000, pa.timestamp("us"))
        times = read_times(lines, pa.repeat(stored_at, len(lines)))
        clock = pc.extract_regex(pc.binary_slice(lines, 0, _SEARCHED), _CLOCK)
        has_zone = pc.fill_null(pc.greater(pc.binary_length(clock.field("zone")), 0), False)
        return times.cast(pa.int64()), has_zone

    def _to_local(self, time: int, choose: Callable[[Iterable[timedelta]], timedelta]) -> int:
        """Return what clocks show at a time, in microseconds: the least or the greatest."""
        offsets: Iterable[timedelta] = _ZONES
        if self.zone is not None:  # its clock may be set back after `since` or before `until`
            at = to_datetime(time)
            near = (at, at + _CHANGE if choose is min else at - _CHANGE)
            offsets = [_offset(one, self.zone) for one in near]
        return time // 1000 + choose(offsets) // timedelta.resolution


def _offset(at: datetime, zone: tzinfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


@dataclass(slots=True)
class StorageTimes:
    """About when the lines of a file were stored: by their times, and when the last one was."""

    times: LineTimes
    _last: int | None = None  # microseconds
    _unread: bytes = b""  # the last lines with a time, if none of them is wanted

    def read(self, text: bytes) -> pa.Array:
        """Return the times of lines in microseconds; called with all lines in their order."""
        lines = pa.array(text.removesuffix(b"\n").split(b"\n"), pa.binary())
        times, has_zone = self.times.read(lines)
        if zone := self.times.zone:
            ahead = _offset(to_datetime(self.times.stored_at), zone) // timedelta.resolution
            times = pc.if_else(has_zone, times, pc.subtract(times, ahead))
        times = pc.fill_null(pc.fill_null_forward(times), self._last)
        self._last = times[-1].as_py()
        return times

    def read_some(
        self, block: bytearray, start: int, end: int, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[int | None]:
        """Yield the times of ranges of the lines `[start, end)` of a block; called as `read`."""
        text = bytes(block[start:end])
        if not ranges:
            self._unread = text if _HAS_CLOCK.search(text) else self._unread
            return
        if self._unread:
            self.read(self._unread)  # the first lines may have the time of a line there
        times, self._unread = self.read(text), b""
        for first, last in ranges:
            at = block.count(b"\n", start, first)
            yield from times.slice(at, count_lines(bytes(block[first:last]))).to_pylist()

    def estimate(self, times: Iterable[int | None], begins: int) -> list[int]:
        """Return when lines of a file that begins then were stored, in nanoseconds.

        If all times are so late or early that another zone explains it, they are of that. All
        lines of the file were read.
        """
        if self._unread:
            self.read(self._unread)
        late = self.times.stored_at // 1000 - (self._last or 0)
        is_of_zone = abs(late) <= max(_ZONES) // timedelta.resolution
        late = round(late / _QUARTER) * _QUARTER if is_of_zone else 0
        return self.bound(times, begins, late)

    def bound(self, times: Iterable[int | None], begins: int, late: int = 0) -> list[int]:
        """Return times of lines in nanoseconds, that much later, in order and within the file's."""
        ends = self.times.stored_at
        found = (((one or 0) + late) * 1000 for one in times)
        return [*accumulate((min(max(one, begins), ends) for one in found), max)]
