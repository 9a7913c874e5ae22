"""A slot of Spark: one task at a time, which serves all partitions that share the slot.

    supervisors ──join──▶ slot ──assignments──▶ Spark task: a session for each
         ▲                                               │
         └──────────────────── reports ──────────────────┘

A session that joins while a task runs has the task asked to end: its sessions commit, report, and
join again. `Shared` is what the supervisors of all partitions share: slots, limits, clocks.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from receiver.consume.assignment import LARGEST_PULL, Assignment, Ending, Report, SessionLimits
from receiver.storage.rotation import Calendar

_JOIN = 0.05  # seconds in which sessions join before a task begins
_ASK_EVERY = 0.5  # seconds between requests to a task to leave: it may miss the first one
_LEAVE = "logship.leave"  # prefix of the subjects on which tasks are asked to leave

RunTask = Callable[[Sequence[Assignment]], Sequence[Report]]
"""Runs a session for each assignment in one task; returns their reports in the same order."""


@dataclass(slots=True)
class Slot:
    """Runs sessions of some partitions as one task, by `run_task` in one of the `threads`.

    `joining` is set while sessions may join without ending another task: all partitions of the slot
    join then, since those without lines cost nothing.
    """

    connection: Connection
    run_task: RunTask
    threads: Executor
    joining: asyncio.Event = field(default_factory=asyncio.Event)
    has_reported: bool = False
    """Whether some task has: Spark works."""
    _is_closed: bool = False
    _waiting: list[tuple[Assignment, asyncio.Future[Report]]] = field(default_factory=list)
    _running: asyncio.Task[None] | None = None
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, assignment: Assignment) -> Report:
        """Run a session in the next task, and return its report; raises what `run_task` raises."""
        report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self._waiting.append((assignment, report))
        self.end_task()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run_tasks())
        return await report

    def end_task(self) -> None:
        """Ask the running task to end after its batches."""
        self._asked.set()

    def close(self) -> None:
        """Begin no other task, and ask the running one to end."""
        self._is_closed = True
        self.end_task()

    async def _run_tasks(self) -> None:
        while self._waiting:
            self.joining.set()
            await asyncio.sleep(_JOIN)
            self.joining.clear()
            sessions, self._waiting = self._waiting, []
            sessions = [one for one in sessions if not one[1].done()]  # others were cancelled
            if sessions and not self._is_closed:
                await self._run_task(sessions)
            for assignment, report in sessions:
                if not report.done():
                    report.set_result(Report(assignment.nothing, 0, Ending.ASKED))

    async def _run_task(
        self, sessions: Sequence[tuple[Assignment, asyncio.Future[Report]]]
    ) -> None:
        """Run one task, and hand out the reports, or its error."""
        self._asked.clear()
        leave = f"{_LEAVE}.{self.connection.new_token()}"
        assignments = [replace(assignment, leave=leave) for assignment, _ in sessions]
        loop = asyncio.get_running_loop()
        asking = asyncio.create_task(self._ask_to_leave(leave))
        task = loop.run_in_executor(self.threads, self.run_task, assignments)
        # read its error in any case, or asyncio logs it
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({task})
        asking.cancel()
        error = task.exception()
        reports = [] if error else task.result()
        self.has_reported |= not error
        for number, (_, waiting) in enumerate(sessions):
            if waiting.done():
                continue  # it was cancelled
            if error:
                waiting.set_exception(error)
            else:
                waiting.set_result(reports[number])

    async def _ask_to_leave(self, subject: str) -> None:
        """Once the task is to end, ask it until it has ended."""
        await self._asked.wait()
        while True:
            with suppress(ConnectionLost):
                await self.connection.publish(subject)
            await asyncio.sleep(_ASK_EVERY)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How large batches are, how long sessions last, how a supervisor waits. Bytes and seconds.

    `limit` and `pull` are bytes of a batch and of a pull. With `once` a supervisor ends if nothing
    is left; without `take_over` it does not claim a partition of a running receiver. With a
    `standby` it takes over after so many seconds of silence. A task that has not reported for
    `patience` is reported. `pause` is the first pause after a failure; `check_every` is the time
    between checks of the stream, of the owner and of the clock.
    """

    limit: int
    pull: int = LARGEST_PULL
    session: SessionLimits = field(default_factory=SessionLimits)
    once: bool = False
    take_over: bool = True
    standby: float | None = None
    patience: float = 60.0
    pause: float = 0.5
    check_every: float = 10.0


@dataclass(slots=True)
class Shared:
    """What the supervisors of all partitions share; each next task follows its `limits`.

    Partition after partition goes to the next of the `slots`, which are at least one; only the
    first `usable` of them get sessions. `clock` gives nanoseconds since the epoch; `closed` is set
    when a task has closed segments.
    """

    connection: Connection
    slots: Sequence[Slot]
    clock: Callable[[], int]
    calendar: Calendar
    limits: TaskLimits
    usable: int = 1
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def use_slots(self, count: int) -> None:
        """Deal partitions to so many slots; running tasks end, and their sessions join the new."""
        count = max(1, min(count, len(self.slots)))
        if count != self.usable:
            self.usable = count
            for slot in self.slots:
                slot.end_task()

    def slot_of(self, index: int) -> Slot:
        """Return the slot to which the `index`-th partition is dealt now."""
        return self.slots[index % self.usable]
