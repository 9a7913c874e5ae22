"""Turns assignments into Spark jobs: one task per partition, whatever has gathered while all slots were busy in one job."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from receiver.assignment import Assignment
from receiver.outcome import Outcome

__all__ = ["Jobs", "Runner"]

Runner = Callable[[Sequence[Assignment]], list[Outcome]]
"""Runs a Spark job with one task per assignment and returns their outcomes in order; called in a thread."""

logger = logging.getLogger(__name__)


class Jobs:
    """The desk between the partitions and Spark."""

    def __init__(self, runner: Runner, slots: int) -> None:
        """At most `slots` jobs run at once; a partition that is slow holds up only those that share its job."""
        self._runner = runner
        self._slots = asyncio.Semaphore(slots)
        self._waiting: list[tuple[Assignment, asyncio.Future[Outcome]]] = []

    async def submit(self, assignment: Assignment) -> Outcome:
        """Have an assignment done and return its outcome; whatever the runner raises comes through."""
        mine: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((assignment, mine))
        try:
            async with self._slots:
                if any(future is mine for _, future in self._waiting):
                    await self._run()
            return await mine
        finally:
            mine.cancel()  # whoever was told to stop in the queue is not run

    async def _run(self) -> None:
        """Run whatever waits in one job. Only for one of those who wait, so that nobody is held up by others' jobs."""
        group = [waiting for waiting in self._waiting if not waiting[1].done()]
        self._waiting = []
        job = asyncio.to_thread(self._runner, [assignment for assignment, _ in group])
        try:
            outcomes = await job
        except asyncio.CancelledError:
            for _, future in group:
                future.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - it reaches everybody who waits for it, this task too
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
