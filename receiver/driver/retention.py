"""Has closed segments looked after, in a thread of low priority: when some were committed, and every minute, since age passes by itself."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from receiver.storage.retention import Retention, be_modest

__all__ = ["RetentionWorker"]

_LOOK_EVERY = 60.0  # seconds


class RetentionWorker:
    """Runs retention until it is told to end; `wanted` is set when there is a reason to."""

    def __init__(self, retention: Retention, stop: asyncio.Event) -> None:
        """Do nothing yet; `stop` is set when there is no time left to compress what was closed."""
        self.retention = retention
        self.wanted = asyncio.Event()
        self._stop = stop
        self._is_ending = self._is_over = False

    def end(self) -> None:
        """Have `run` return behind what was committed."""
        self._is_ending = True
        self.wanted.set()

    async def run(self) -> None:
        """Run retention now, and whenever there is a reason to, until told to end."""
        thread = ThreadPoolExecutor(1, "retention", be_modest)
        is_last = False
        try:
            while not is_last:
                is_last = self._is_ending
                self.wanted.clear()
                await asyncio.get_running_loop().run_in_executor(
                    thread, self.retention.tidy, lambda: self._is_over or self._stop.is_set()
                )
                if not is_last:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY):
                            await self.wanted.wait()
        finally:
            self._is_over = True
            thread.shutdown()
