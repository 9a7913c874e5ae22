"""Cancellations that a library may lose on the way: `asyncio.wait_for` of Python 3.11 does (gh-86296, mended in 3.12).

One that comes together with the result is forgotten, and whoever cancelled waits for ever. nats-py connects that way.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["kept"]


@contextmanager
def kept() -> Iterator[None]:
    """Raise `CancelledError` at the end of the `with` when the task was cancelled inside, whatever came of it."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
