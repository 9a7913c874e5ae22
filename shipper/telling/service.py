"""What an agent does for the service manager: says when it is ready, how it goes, and that it is not stuck.

Without one it does nothing at all.
"""

import asyncio
import time

from broker.notify import Notifier
from shipper.telling.view import View

__all__ = ["Service"]

_SOON = 0.1  # seconds between looks at whether it is ready
_STARTED = 10.0  # after which a start that takes long is one that goes well
_STATUS_EVERY = 5.0


class Service:
    """Speaks for the agent that a view shows."""

    def __init__(self, notifier: Notifier, view: View) -> None:
        """Say nothing yet."""
        self._notifier = notifier
        self._view = view
        self._told: tuple[int, str] | None = None

    async def run(self) -> None:
        """Speak until cancelled."""
        if not self._notifier.is_heard:
            return
        await self._start()
        pause = min(_STATUS_EVERY, (self._notifier.watchdog or 2 * _STATUS_EVERY) / 2)
        status_due = 0.0
        while True:
            now = asyncio.get_running_loop().time()
            if now >= status_due:
                status_due = now + _STATUS_EVERY
                self._tell_status()
            self._feed()
            await asyncio.sleep(pause)

    def reloading(self) -> None:
        """Say that settings are being read again."""
        self._notifier.reloading(time.monotonic_ns())

    def reloaded(self) -> None:
        """Say that this is done."""
        self._notifier.ready()

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._notifier.stopping()

    async def _start(self) -> None:
        # waiting for a broker is this program's work, and no reason for a service manager to end it
        until = asyncio.get_running_loop().time() + _STARTED
        while not (self._view.is_following or self._view.waiting_for):
            if asyncio.get_running_loop().time() >= until:
                break
            self._feed()
            await asyncio.sleep(_SOON)
        self._tell_status()
        self._notifier.ready()

    def _feed(self) -> None:
        if self._notifier.watchdog and self._view.is_moving(self._notifier.watchdog):
            self._notifier.alive()

    def _tell_status(self) -> None:
        state = self._view.meter.rounds, self._view.waiting_for
        # while nothing is shipped and nothing is waited for, nothing changes that is worth adding up all files
        if state != self._told or self._view.waiting_for or not self._view.is_following:
            self._notifier.status(self._view.status())
        self._told = state if self._view.is_following else None
