"""The slots that Spark has for stays: whoever wants one waits in turn, and asks those who have stayed longest to leave."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from receiver.assignment import Assignment
from receiver.outcome import Report

__all__ = ["Jobs", "Runner"]

Runner = Callable[[Assignment], Report]
"""Runs a Spark job of one task and returns its report; called in a thread."""


class Jobs:
    """The desk between the partitions and Spark."""

    def __init__(self, runner: Runner, slots: int) -> None:
        """At most `slots` jobs run at once, each for one partition: one that is slow holds up no other."""
        self._runner = runner
        self._threads = ThreadPoolExecutor(slots, "stay")
        self._slots = asyncio.Semaphore(slots)
        self._waiting = 0
        self._staying: dict[asyncio.Event, None] = {}

    async def submit(self, assignment: Assignment, leave: asyncio.Event) -> Report:
        """Have an assignment done and return its report; whatever the runner raises comes through.

        Sets `leave` when somebody else waits for the slot.
        """
        self._waiting += 1
        try:
            self._make_room()
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            self._staying[leave] = None
            self._make_room()
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._runner, assignment
            )
        finally:
            del self._staying[leave]
            self._slots.release()

    def _make_room(self) -> None:
        """Ask as many to leave as wait for a slot: those who came first."""
        if self._slots.locked():
            for leave in [*self._staying][: self._waiting]:
                leave.set()

    def close(self) -> None:
        """Let go of the threads; a job that still runs goes on without anybody who waits for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)
