"""A broker that is away: what the log says of it, and when to connect again. No I/O.

One line for a broker that restarts; two for one that is away longer, and a reminder every ten
minutes. Times are in seconds, by the clock of the event loop.
"""

import logging
import random

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # between attempts
_START, _RESTART = 3.0, 10.0  # that a broker may take when we start, and later
_REMINDER = 600.0
logger = logging.getLogger(__name__)


class Absence:
    """Begins with the first failed attempt to connect, and ends with one that succeeds."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.reason = ""
        """Why there is no broker; empty if there is one."""
        self.retry_at = 0.0
        """When to connect again."""
        self._since, self._attempts, self._pause = 0.0, 0, _FIRST_PAUSE
        self._logged, self._logged_at = "", 0.0  # the reason in the log
        self._was_there = False

    def note(self, reason: str, now: float, *, keeps_out: bool, was_there: bool) -> None:
        """Note a failed attempt.

        A refusal (`keeps_out`) is logged at once, also after another reason: a person must act.
        """
        if not self.reason:
            self._since, self._was_there = now, was_there
            self._attempts, self._pause = 0, _FIRST_PAUSE
        self.reason, self._attempts = reason, self._attempts + 1
        self.retry_at = now + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        is_long = now - self._since >= (_RESTART if was_there else _START)
        if self._logged != reason if keeps_out else is_long and not self._logged:
            logger.warning("broker away: %s; trying again", reason)
            self._logged, self._logged_at = reason, now
        elif self._logged and now - self._logged_at >= _REMINDER:
            minutes, attempts = (now - self._since) / 60, self._attempts
            logger.warning("broker away for %.0f min, %d attempts: %s", minutes, attempts, reason)
            self._logged, self._logged_at = reason, now

    def end(self, address: str, now: float) -> None:
        """Note that a server at `address` has accepted us."""
        if self._logged or (self.reason and self._was_there):
            logger.info("broker at %s is back after %.0f s", address, now - self._since)
        self.reason = self._logged = ""
        self.retry_at = 0.0
