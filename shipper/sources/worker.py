"""A thread that does the blocking work of one source."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Worker:
    """Does work in the order in which it is asked for.

    `busy_since` is when it began what it does, or when that advanced last, by the clock of the
    event loop; None if it does nothing.
    """

    def __init__(self, name: str) -> None:
        self.busy_since: float | None = None
        self._thread = ThreadPoolExecutor(1, name)

    async def do(
        self, work: Callable[Given, Answer], *given: Given.args, **options: Given.kwargs
    ) -> Answer:
        """Return what the work does; if the caller is cancelled, the work goes on to its end."""

        def run() -> Answer:
            _RUNNING.set(self)
            self.busy_since = time.monotonic()
            try:
                return work(*given, **options)
            finally:
                self.busy_since = None

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


_RUNNING: ContextVar[Worker | None] = ContextVar("worker", default=None)  # of this thread


def note_progress() -> None:
    """Note that the work of this thread's worker advances: however long it takes, it is no hang."""
    if worker := _RUNNING.get():
        worker.busy_since = time.monotonic()
