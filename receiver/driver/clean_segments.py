"""Clean closed segments beside the driver, in a thread of low priority."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from receiver.storage.segments import SegmentCleaner, lower_priority

_EVERY = 60.0  # seconds: age passes though nothing is closed


async def clean_segments(
    cleaner: SegmentCleaner, closed: asyncio.Event, done: asyncio.Event, stop: asyncio.Event
) -> None:
    """Compress and delete closed segments: whenever some were `closed`, and every minute.

    Runs once more after `done` is set, and returns. With `stop` set it compresses no more.
    """
    is_over, thread = threading.Event(), ThreadPoolExecutor(1, "retention", lower_priority)
    loop = asyncio.get_running_loop()
    try:
        while True:
            is_last = done.is_set()
            closed.clear()
            await loop.run_in_executor(
                thread, cleaner.clean, lambda: is_over.is_set() or stop.is_set()
            )
            if is_last:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), _EVERY)
    finally:
        is_over.set()
        thread.shutdown()
