"""Wait for an event or a time, whichever comes first, for less CPU than `asyncio.timeout`."""

import asyncio


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Return when an event is set, or after so many seconds, which set it too."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
