"""Chooses lines of received files by the times that they name: the files have no others."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from receiver.table.line_time import find_times


@dataclass(slots=True)
class LineTimes:
    """The lines of a file between two times in nanoseconds, None for no bound.

    A line without a time has that of the line before. Lines before the first time are wanted.
    `stored_at` is when the last line was stored: it says the year where lines do not.
    """

    since: int | None
    until: int | None
    stored_at: int
    _last: int | None = None  # microseconds

    def mask(self, texts: pa.Array) -> pa.Array:
        """Return which lines are in time, of lines that follow those of the call before."""
        times = pc.fill_null_forward(self._find(texts).cast(pa.int64()))
        if self._last is not None:
            times = pc.fill_null(times, self._last)
        self._last = times[-1].as_py()
        is_in_time = pa.repeat(True, len(texts))
        if self.since is not None:
            is_in_time = pc.and_(is_in_time, pc.greater_equal(times, self.since // 1000))
        if self.until is not None:
            is_in_time = pc.and_(is_in_time, pc.less(times, self.until // 1000))
        return pc.fill_null(is_in_time, True)

    def _find(self, texts: pa.Array) -> pa.Array:
        """Return the times: in the form of the first line, and line by line for all others."""
        times = find_times(texts, pa.repeat(0, len(texts)), texts.slice(0, 1), [self.stored_at])
        other = pc.is_null(times)
        rest = texts.filter(other)
        if not len(rest):
            return times
        own = find_times(rest, pa.arange(0, len(rest)), rest, [self.stored_at] * len(rest))
        return pc.replace_with_mask(times, other, own)
