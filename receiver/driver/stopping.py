"""Run a coroutine that a stop ends."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Answer = TypeVar("Answer")


async def run_unless_stopped(stop: asyncio.Event, call: Awaitable[Answer]) -> Answer | None:
    """Return what `call` returns; None if `stop` is set before: `call` was cancelled and has ended.

    `stop` may be cleared again at once. Raises what `call` raises, also while it is being
    cancelled.
    """
    work = asyncio.ensure_future(call)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        is_stopped = stopped.done()
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.wait({work, stopped})
    return None if work.cancelled() and is_stopped else work.result()
