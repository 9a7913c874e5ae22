"""The slots that Spark has for stays: whoever wants one waits in turn, and asks those who have stayed longest to leave."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from receiver.consume.assignment import Assignment
from receiver.consume.outcome import Report

__all__ = ["Jobs", "Runner"]

_SOON = 1.0  # seconds in which a task leaves that is asked to

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
        self._staying: dict[asyncio.Event, float | None] = {}  # since when each is asked to leave

    async def submit(self, assignment: Assignment, leave: asyncio.Event) -> Report:
        """Have an assignment done and return its report; whatever the runner raises comes through.

        Sets `leave` when somebody else waits for the slot.
        """
        loop = asyncio.get_running_loop()
        self._waiting += 1
        insist = asyncio.ensure_future(self._insist())
        try:
            self._make_room()
            await self._slots.acquire()
        finally:
            insist.cancel()
            self._waiting -= 1
        try:
            self._staying[leave] = None
            self._make_room()
            return await loop.run_in_executor(self._threads, self._runner, assignment)
        finally:
            del self._staying[leave]
            self._slots.release()

    async def _insist(self) -> None:
        """Go on asking while somebody waits: who was asked may hang in a disk that does not answer."""
        while True:
            await asyncio.sleep(_SOON)
            self._make_room()

    def _make_room(self) -> None:
        """Ask as many to leave as wait for a slot: those who came first. Who was asked and did not leave is passed over."""
        if not self._slots.locked():
            return
        now = asyncio.get_running_loop().time()
        asked = [since for since in self._staying.values() if since is not None]
        wanted = self._waiting - sum(now - since < _SOON for since in asked)
        stayers = [leave for leave, since in self._staying.items() if since is None]
        for leave in stayers[: max(wanted, 0)]:
            self._staying[leave] = now
            leave.set()

    def close(self) -> None:
        """Let go of the threads; a job that still runs goes on without anybody who waits for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)
