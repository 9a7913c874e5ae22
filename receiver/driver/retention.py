"""Has closed segments looked after, in a thread of low priority: when some were committed, and every minute, since age passes by itself."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from receiver.storage.retention import Order, Retention, be_modest

__all__ = ["RetentionWorker"]

_LOOK_EVERY = 60.0  # seconds


class RetentionWorker:
    """Runs retention until it is told to end."""

    def __init__(self, retention: Retention, stop: asyncio.Event) -> None:
        """Do nothing yet; `stop` is set when there is no time left to compress what was closed."""
        self._retention = retention
        self._stop = stop
        self._is_wanted = asyncio.Event()
        self._is_ending = self._is_over = False

    def closed(self, names: tuple[str, ...]) -> None:
        """Take in segments whose commit is done."""
        if names:
            self._is_wanted.set()

    def change(self, order: Order) -> None:
        """Go by another order from the next look on."""
        self._retention.order = order

    def end(self) -> None:
        """Have `run` return behind what was taken in."""
        self._is_ending = True
        self._is_wanted.set()

    async def run(self) -> None:
        """Run retention now, and whenever there is a reason to, until told to end."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "retention", be_modest)
        is_last = False
        try:
            while not is_last:
                is_last = self._is_ending
                self._is_wanted.clear()
                await loop.run_in_executor(thread, self._retention.tidy, self._has_to_leave)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0 if is_last else _LOOK_EVERY):
                        await self._is_wanted.wait()
        finally:
            self._is_over = True
            thread.shutdown()

    def _has_to_leave(self) -> bool:
        return self._is_over or self._stop.is_set()
