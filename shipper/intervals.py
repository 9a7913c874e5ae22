"""How often a shipper scans and publishes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals of the loop, in seconds.

    Folders are scanned every `scan_every` seconds, or `scan_after` seconds after the last scan if
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

    def scan_interval(self, took: float, *, is_due: bool) -> float:
        """Return the seconds from a scan to the next; `is_due` if files came or went.

        The scan `took` seconds: scans take at most a hundredth of the time, or a tenth if due.
        """
        return max(self.scan_after, 10 * took) if is_due else max(self.scan_every, 100 * took)
