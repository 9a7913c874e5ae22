"""When a shipper scans and publishes next."""

import asyncio
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals of the loop, in seconds.

    Folders are scanned every `scan_every` seconds, and `scan_after` seconds after the last scan if
    files came or went. After a small round the next one is gathered when about `round_lines` lines
    have come, but `least_interval` to `interval` seconds after the round was sent: a round of one
    line costs about as much as one of a hundred.
    """

    scan_after: float = 0.2
    scan_every: float = 5.0
    interval: float = 0.2
    least_interval: float = 0.02
    round_lines: int = 170

    def interval_after(self, lines: int, seconds: float) -> float:
        """Return the seconds from a round to the next; the round's lines came in `seconds`."""
        expected = self.round_lines * seconds / max(1, lines)
        return min(self.interval, max(self.least_interval, expected))


class ScanSchedule:
    """When the next scan is due.

    Scans take at most a hundredth of the time, or a tenth while files come and go: they become
    rarer where a scan takes long.
    """

    def __init__(self, intervals: Intervals) -> None:
        self._intervals = intervals
        self._scanned_at = -math.inf
        self._took = 0.0

    @property
    def has_scanned(self) -> bool:
        """Whether a scan is done."""
        return self._scanned_at > -math.inf

    def note_scan(self, began: float) -> None:
        """Note that a scan has ended that began then, on the clock of the event loop."""
        self._scanned_at = asyncio.get_running_loop().time()
        self._took = self._scanned_at - began

    def seconds_left(self, *, is_due: bool) -> float:
        """Return the seconds until the next scan; `is_due` if files came or went."""
        after = max(self._intervals.scan_every, 100 * self._took)
        if is_due:
            after = max(self._intervals.scan_after, 10 * self._took)
        return self._scanned_at + after - asyncio.get_running_loop().time()


class RoundSchedule:
    """When the next round after a small one is due."""

    def __init__(self, intervals: Intervals) -> None:
        self._intervals = intervals
        self._interval = intervals.interval
        self._sent_at = -math.inf

    def note_round(self, lines: int) -> None:
        """Note that a round of so many lines is sent now."""
        before, self._sent_at = self._sent_at, asyncio.get_running_loop().time()
        self._interval = self._intervals.interval_after(lines, self._sent_at - before)

    def seconds_left(self) -> float:
        """Return the seconds until the next round."""
        return self._sent_at + self._interval - asyncio.get_running_loop().time()
