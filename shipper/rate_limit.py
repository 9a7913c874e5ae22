"""Limits how many bytes of lines are sent per second (`--max-rate`): a token bucket."""

import asyncio
import sys
import time
from collections.abc import Callable

from shipper.timer import wait_for_event


class RateLimit:
    """Lets rounds pass at `rate` bytes of lines per second; a rate of 0 is no limit.

    After a silence the bytes of one second pass at once. A round of more bytes passes when the
    bucket is full, and the round after it waits so much longer. One round waits at a time.
    """

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with a full bucket; `clock` is seconds, as those of `asyncio`."""
        self.rate = rate
        self._clock = clock
        self._level = float(rate)  # bytes that may pass now; below 0 after a large round
        self._filled_at = clock()
        self._since: float | None = None  # each round has had to wait since then
        self._is_waiting = False
        self._wake = asyncio.Event()

    def change(self, rate: int) -> None:
        """Use another rate from now on, also for the round that waits."""
        self._fill()
        if self.rate != rate:
            self._level = min(self._level, rate) if self.rate else float(rate)
            self.rate, self._since = rate, None
            self._wake.set()

    def bytes_in(self, seconds: float) -> int:
        """Return how many bytes may pass in so many seconds."""
        return int(self.rate * seconds) if self.rate else sys.maxsize

    async def wait_for(self, size: int, stopping: asyncio.Event) -> None:
        """Return when `size` bytes may pass, which then count as sent, or when `stopping` is set.

        The caller of `stopping.set` calls `wake`, too.
        """
        if not self.seconds_until(size):
            self._since = None
        try:
            while (seconds := self.seconds_until(size)) and not stopping.is_set():
                self._is_waiting = True
                if self._since is None:
                    self._since = self._clock()
                self._wake.clear()
                await wait_for_event(self._wake, seconds)
        finally:
            self._is_waiting = False
        self._level -= size

    def wake(self) -> None:
        """Have the round that waits check `stopping`."""
        self._wake.set()

    def seconds_until(self, size: int) -> float:
        """Return after how many seconds `size` bytes may pass; 0 for now."""
        self._fill()
        lacking = min(size, self.rate) - self._level
        return lacking / self.rate if self.rate and lacking >= 1 else 0.0

    @property
    def holding_seconds(self) -> float | None:
        """For how many seconds each round has had to wait; None if the last one had not."""
        self._fill()
        is_holding = self._is_waiting or self._level < self.rate
        return None if self._since is None or not is_holding else self._clock() - self._since

    def _fill(self) -> None:
        before, self._filled_at = self._filled_at, self._clock()
        self._level = min(self.rate, self._level + self.rate * (self._filled_at - before))
