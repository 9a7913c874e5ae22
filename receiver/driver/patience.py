"""Waiting that ends when the program is told to stop."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["pause", "unless"]

Answer = TypeVar("Answer")


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, or return as soon as `stop` is set."""
    if seconds > 0:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return


async def unless(stop: asyncio.Event, call: Awaitable[Answer]) -> Answer | None:
    """Return what `call` returns, or None as soon as `stop` is set; raises what `call` raises."""
    work = asyncio.ensure_future(call)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        stopped.cancel()
        work.cancel()
