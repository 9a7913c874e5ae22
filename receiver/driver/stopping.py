"""Run a coroutine that a stop ends."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Answer = TypeVar("Answer")


async def run_unless_stopped(stop: asyncio.Event, call: Awaitable[Answer]) -> Answer | None:
    """Return what `call` returns; None if `stop` is set before: `call` was cancelled and has ended.

    Raises what `call` raises, also while it is being cancelled.
    """
    work = asyncio.ensure_future(call)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.wait({work, stopped})
    return None if work.cancelled() and stop.is_set() else work.result()
