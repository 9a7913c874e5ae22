"""One partition's supervisor with everything real but Spark: its tasks run in a thread."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Self

from nats_logship.client.connection import Connection, Message
from receiver.consume import task
from receiver.consume.assignment import Assignment, Report, SessionLimits
from receiver.consume.claim import Claim
from receiver.driver.slot import Shared, Slot, TaskLimits
from receiver.driver.supervisor import PartitionSupervisor
from receiver.meter import Meter
from receiver.storage.rotation import Calendar
from tests.receiver.partition import Partition

_OFTEN = {"pause": 0.05, "check_every": 0.1}


class RequestCounter:
    """Counts the requests of a connection from now on."""

    def __init__(self, connection: Connection) -> None:
        self._request = connection.request
        self._requests: asyncio.Queue[None] = asyncio.Queue()
        connection.request = self._count  # type: ignore[method-assign]

    async def _count(self, *arguments: Any, **options: Any) -> Message:
        self._requests.put_nowait(None)
        return await self._request(*arguments, **options)

    async def wait(self, count: int) -> None:
        """Wait for so many requests."""
        async with asyncio.timeout(20):
            for _ in range(count):
                await self._requests.get()


class Running(ABC):
    """What runs beside a test, until it is left."""

    stop: asyncio.Event
    running: asyncio.Task[None]

    @abstractmethod
    async def run(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        self.running = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        try:
            async with asyncio.timeout(20):
                await asyncio.wait({self.running})
        finally:
            await self.close()

    async def ends(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.running), 40)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(40):
            while not holds():
                assert not self.running.done(), self.running
                await asyncio.sleep(0.02)


class Supervised(Running):
    """A supervisor of a partition, and how many jobs it has run."""

    def __init__(
        self,
        partition: Partition,
        owner: str = "a:1",
        *,
        once: bool = False,
        often: bool = False,
        session: SessionLimits = SessionLimits(60.0, 0.3, 0.01),  # noqa: B008 - a frozen value
        slots: int = 1,
        index: int = 0,
    ) -> None:
        self.partition = partition
        self.jobs = 0
        self.may_run = threading.Event()
        self.may_run.set()
        self.reports: list[Report] = []
        self.connection = Connection([partition.url], owner, partition.access)
        self.meter = Meter(lambda: 0)
        limits = TaskLimits(
            limit=partition.limit,
            session=SessionLimits(60.0) if once else session,
            once=once,
            **(_OFTEN if often else {}),
        )
        calendar = Calendar(timedelta(hours=1))
        threads = ThreadPoolExecutor(slots)
        all_ = [Slot(self.connection, self._run, threads) for _ in range(slots)]
        self.slot = all_[index]
        self.shared = Shared(self.connection, all_, time.time_ns, calendar, limits, slots)
        self.supervisor = PartitionSupervisor(
            self.shared,
            Claim(self.connection, partition.number, owner, "LOGS"),
            self.meter.expect(partition.number),
            index,
        )
        self.stop = self.supervisor.stop

    def _run(self, assignments: Sequence[Assignment]) -> Sequence[Report]:
        self.jobs += 1
        self.may_run.wait(60)
        reports = task.run_sessions(assignments, self.partition.destination)
        self.reports += reports
        return reports

    async def run(self) -> None:
        await self.supervisor.run()

    async def close(self) -> None:
        await self.supervisor.wake.close()
        await self.connection.close()

    async def has(self, expected: bytes) -> None:
        await self.until(lambda: self.partition.read("web01") == expected)
