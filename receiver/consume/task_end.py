"""When the sessions of one Spark task end: together, since Spark returns their reports together.

One partition may end before the others: it is blocked, somebody else owns it, or its files were
closed. The others go on for a second, so that the driver soon knows it.
"""

import random
import threading
import time
from collections.abc import Callable
from math import inf

from receiver.consume.assignment import Ending, SessionLimits

_SOON = 1.0  # seconds


class TaskEnd:
    """The end of a task; its methods may be called in any thread.

    The task lasts as long as `limits` say for a session, or up to a quarter less by chance: tasks
    that began together end apart. It also ends if no session has received anything for `silence`.
    """

    def __init__(self, limits: SessionLimits) -> None:
        """Begin now."""
        self._limits = limits
        self._began = self._active_at = time.monotonic()
        self._until = self._began + limits.longest * random.uniform(0.75, 1)
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []
        self.is_asked = False
        """Whether the driver has asked for the end."""

    @property
    def waits(self) -> bool:
        """Whether sessions wait for new messages."""
        return self._limits.silence > 0

    def on_change(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in any thread, when the task is to end sooner than before."""
        self._wakers.append(wake)

    def ask(self) -> None:
        """End now: the driver asks for it."""
        self.is_asked = True
        self._wake()

    def note_activity(self) -> None:
        """Note that a session has received something."""
        self._active_at = time.monotonic()

    def hasten(self) -> None:
        """End within a second: a session has ended."""
        self._limit(time.monotonic() + _SOON)

    def report_soon(self) -> None:
        """End in time for news to reach the driver."""
        self._limit(self._began + self._limits.report_within)

    def _limit(self, until: float) -> None:
        with self._lock:
            if until >= self._until:
                return
            self._until = until
        self._wake()

    def _wake(self) -> None:
        for wake in self._wakers:
            wake()

    @property
    def is_over(self) -> bool:
        """Whether sessions end although more may come."""
        return self.is_asked or time.monotonic() >= self._until

    @property
    def seconds_left(self) -> float:
        """The seconds until the end if nothing comes, at least 0."""
        if self.is_asked:
            return 0.0
        silent_at = self._active_at + (self._limits.silence or -inf)
        return max(0.0, min(self._until, silent_at) - time.monotonic())

    @property
    def reason(self) -> Ending:
        """Why the task ends, if it ends now."""
        if self.is_asked:
            return Ending.ASKED
        return Ending.TIME if self.is_over else Ending.SILENCE
