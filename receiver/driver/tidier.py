"""Has closed segments looked after, in a thread that steps back behind everything else.

That is when some were committed, and every minute, since age passes by itself.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from receiver.storage.retention import Order, Retention, be_modest

__all__ = ["Tidier"]

_LOOK_EVERY = 60.0  # seconds


class Tidier:
    """Has retention look whenever segments were closed, and every minute."""

    def __init__(self, retention: Retention, stopped: Callable[[], bool]) -> None:
        """Do nothing yet; `stopped` says that there is no time left."""
        self._retention = retention
        self._stopped = stopped
        self._queue: asyncio.Queue[bool] = asyncio.Queue()
        self._is_over = False

    def closed(self, names: tuple[str, ...]) -> None:
        """Take in segments whose commit is done."""
        if names:
            self._queue.put_nowait(False)

    def change(self, order: Order) -> None:
        """Go by another order from the next look on."""
        self._retention.order = order

    def end(self) -> None:
        """Have `run` end behind what was taken in."""
        self._queue.put_nowait(True)

    async def run(self) -> None:
        """Tidy until told to end."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "tidy", be_modest)
        is_last = False
        try:
            while True:
                await loop.run_in_executor(thread, self._retention.tidy, self._has_to_leave)
                if is_last:
                    return
                is_last = await self._next()
        finally:
            self._is_over = True
            thread.shutdown()

    async def _next(self) -> bool:
        """Wait for a reason to look again; True when it is the last one."""
        try:
            async with asyncio.timeout(
                _LOOK_EVERY
            ):  # wait_for loses cancellations: broker/client/cancellation.py
                is_last = await self._queue.get()
        except TimeoutError:
            return False
        while not self._queue.empty():
            is_last |= self._queue.get_nowait()
        return is_last

    def _has_to_leave(self) -> bool:
        return self._is_over or self._stopped()
