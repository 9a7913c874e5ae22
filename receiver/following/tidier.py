"""Has closed segments looked after, in a thread that steps back behind everything else.

That is when some were committed, and every minute, since age passes by itself.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from receiver.writing.closet import Closet, Order, be_modest

__all__ = ["Tidier"]

_LOOK_EVERY = 60.0  # seconds


class Tidier:
    """The desk between the partitions and the closet."""

    def __init__(self, closet: Closet, stopped: Callable[[], bool]) -> None:
        """Do nothing yet; `stopped` says that there is no time left."""
        self._closet = closet
        self._stopped = stopped
        self._queue: asyncio.Queue[tuple[str, ...] | None] = asyncio.Queue()
        self._is_over = False

    def closed(self, names: tuple[str, ...]) -> None:
        """Take in segments whose commit is done."""
        if names:
            self._queue.put_nowait(names)

    def change(self, order: Order) -> None:
        """Go by another order from the next look on."""
        self._closet.order = order

    def end(self) -> None:
        """Have `run` end behind what was taken in."""
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Tidy until told to end."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "tidy", be_modest)
        names: set[str] = set()
        is_last = False
        try:
            while True:
                await loop.run_in_executor(thread, self._closet.tidy, names, self._has_to_leave)
                if is_last:
                    return
                names, is_last = await self._next()
        finally:
            self._is_over = True
            thread.shutdown()

    async def _next(self) -> tuple[set[str], bool]:
        """Wait for more, and take all of it; nothing has come when the next look is due."""
        names: set[str] = set()
        try:
            async with asyncio.timeout(
                _LOOK_EVERY
            ):  # wait_for loses cancellations: broker/client/cancellation.py
                found = await self._queue.get()
        except TimeoutError:
            return names, False
        while found is not None:
            names.update(found)
            if self._queue.empty():
                return names, False
            found = self._queue.get_nowait()
        return names, True

    def _has_to_leave(self) -> bool:
        return self._is_over or self._stopped()
