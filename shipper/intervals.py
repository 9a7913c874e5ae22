"""How often a shipper scans and publishes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often the loop does what; times in seconds.

    Directories are scanned every `scan_every` seconds (less often where a scan takes long), and `scan_after` seconds
    after the last scan where files came or went. Lines that were left out are covered by a round without lines behind each
    scan, where no other covers them. After a small round the next one is gathered when about
    `round_lines` lines have come, `least_interval` to `interval` seconds after the round was sent: a round costs about the
    same for one line as for a hundred.
    """

    scan_after: float = 0.2
    scan_every: float = 5.0
    interval: float = 0.2
    least_interval: float = 0.02
    round_lines: int = 170

    def interval_after(self, lines: int, seconds: float) -> float:
        """Return the seconds from a round to the next; the lines of the round came in `seconds`."""
        expected = self.round_lines * seconds / max(1, lines)
        return min(self.interval, max(self.least_interval, expected))
