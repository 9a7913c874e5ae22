"""Tells of a receiver's progress while it is behind: a bar where a person looks on, a line now and then in a log."""

import asyncio
import logging
import shutil
from collections import deque
from typing import TextIO

from receiver.status.progress import Glance, bar, progress, sentence
from receiver.status.view import View

__all__ = ["Ticker"]

_BAR_EVERY, _LINE_EVERY = 1.0, 10.0  # seconds
_LOOK_BACK = 15.0  # seconds; a task reports every five

logger = logging.getLogger(__name__)


class Ticker:
    """Speaks of the receiver that a view shows."""

    def __init__(self, view: View, screen: TextIO | None = None) -> None:
        """Say nothing yet; `screen` is a terminal, None where there is only a log."""
        self._view = view
        self._screen = screen
        self._glances: deque[Glance] = deque()
        self._began: Glance | None = None

    async def run(self) -> None:
        """Speak until cancelled."""
        try:
            while True:
                self.tick()
                await asyncio.sleep(_LINE_EVERY if self._screen is None else _BAR_EVERY)
        finally:
            self._wipe()

    def tick(self) -> None:
        """Look, and say what there is to say."""
        now = self._view.glance()
        if not now.is_behind:
            self._end(now)
            return
        if self._began is None:
            self._began = now
        while self._glances and now.at - self._glances[0].at > _LOOK_BACK:
            self._glances.popleft()
        if self._glances:
            self._say(self._began, self._glances[0], now)
        self._glances.append(now)

    def _say(self, began: Glance, before: Glance, now: Glance) -> None:
        seen = progress(began, before, now)
        if self._screen is None:
            logger.info("%s", sentence(seen))
            return
        width = shutil.get_terminal_size().columns
        self._screen.write(f"\r{bar(seen, width).ljust(width - 1)}")
        self._screen.flush()

    def _end(self, now: Glance) -> None:
        if self._began is not None:
            self._wipe()
            logger.info("caught up: %s messages", f"{now.messages - self._began.messages:,}")
        self._began = None
        self._glances.clear()

    def _wipe(self) -> None:
        if self._screen is not None and self._glances:
            self._screen.write("\r\x1b[K")
            self._screen.flush()
