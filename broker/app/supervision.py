"""What a program does for the service manager: says when it is ready, how it goes, and that it is not stuck.

Without one it does nothing at all.
"""

import asyncio
import time
from typing import Protocol

from broker.app.notify import Notifier

__all__ = ["Service", "Supervised"]

_SOON = 0.1  # seconds between looks at whether it is ready
_STARTED = 10.0  # after which a start that takes long is one that goes well
_STATUS_EVERY = 5.0


class Supervised(Protocol):
    """What is spoken for: a running program, looked at."""

    @property
    def is_ready(self) -> bool:
        """Whether it works, or waits for a broker: that is this program's work, and no reason to end it."""

    def news(self) -> object:
        """Return what compares equal as long as the status would read the same; None when that cannot be known."""

    def status(self) -> str:
        """Return one line on how it goes."""

    def is_moving(self, most: float) -> bool:
        """Whether nothing has been stuck for more than `most` seconds."""


class Service:
    """Speaks for a program."""

    def __init__(self, notifier: Notifier, view: Supervised) -> None:
        """Say nothing yet."""
        self._notifier = notifier
        self._view = view
        self._told: object = None

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
        until = asyncio.get_running_loop().time() + _STARTED
        while not self._view.is_ready and asyncio.get_running_loop().time() < until:
            self._feed()
            await asyncio.sleep(_SOON)
        self._tell_status()
        self._notifier.ready()

    def _feed(self) -> None:
        if self._notifier.watchdog and self._view.is_moving(self._notifier.watchdog):
            self._notifier.alive()

    def _tell_status(self) -> None:
        news = self._view.news()
        if news is None or news != self._told:
            self._notifier.status(self._view.status())
        self._told = news
