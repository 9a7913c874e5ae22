"""The shortest interval between two small rounds of a host, as the broker asks for it.

The broker asks when all hosts together send many rounds. Its value is in force until it changes, or
until no broker has written it again for three minutes; hosts' clocks are compared with nothing.
"""

import logging
from collections.abc import Callable

from nats_logship.app.timestamps import SECOND
from nats_logship.wire.interval import INTERVAL_EXPIRES, INTERVAL_KEY, parse_interval
from nats_logship.wire.streams import CONFIG_BUCKET

_SHOWN = 40  # bytes of a value that cannot be read
logger = logging.getLogger(__name__)


class RoundInterval:
    """The interval that the broker asks for; `seconds` is 0 if the host may choose its own.

    `renewed` is when a value came last, in nanoseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Ask for nothing yet; `clock` is nanoseconds since the epoch."""
        self.seconds = 0.0
        self._clock = clock
        self.renewed = 0
        self._refused = b""

    def take(self, value: bytes) -> None:
        """Use the value of the key; one that cannot be read is logged and ignored."""
        seconds, refused = parse_interval(value), self._refused
        self._refused = b"" if seconds is not None else value[:_SHOWN]
        if seconds is not None:
            self.renewed = self._clock()
            self._change(seconds)
        elif self._refused != refused:
            entry = f"{CONFIG_BUCKET}/{INTERVAL_KEY}"
            logger.warning("%s is not an interval in seconds: %r; ignored", entry, self._refused)

    def expire(self) -> None:
        """Forget a value that no broker has written again; call it only while connected."""
        if self._clock() - self.renewed > INTERVAL_EXPIRES * SECOND:
            self._change(0.0)

    def _change(self, seconds: float) -> None:
        if seconds != self.seconds:
            self.seconds = seconds
            logger.info("the broker asks for at least %g s between two rounds", seconds)
