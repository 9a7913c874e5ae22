"""A whole receiver without Spark: its driver, and tasks in threads."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout
from receiver.consume import task
from receiver.consume.assignment import Assignment, Destination, Report
from receiver.driver.driver import Driver
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from tests.receiver.partition import Partition
from tests.receiver.supervised import Running

HOSTS = ("web01", "web02")
"""A host of each of two partitions."""


class Receiver(Running):
    """A receiver of both partitions without Spark: `slots`, whose tasks run in threads."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        once: bool = False,
        take_over: bool = False,
        name: str = "receiver:1",
        slots: int = 1,
    ) -> None:
        self.dealt: list[tuple[int, ...]] = []  # the partitions of each task so far
        self.partitions = [Partition(url, folder, number, partitions=2) for number in range(2)]
        self.settings = ReceiverSettings(
            server=(url,),
            partition=("all",),
            output=folder / "out",
            state_dir=folder / "state",
            once=once,
            take_over=take_over,
        )
        self.connection = Connection([url], "receiver")
        self.meter = Meter(time.time_ns)
        self.stop = asyncio.Event()
        self.driver = Driver(
            *(self.settings, self.connection, name, self.meter, ()),
            *(self._run_job, slots),
        )

    def _run_job(self, destination: Destination, all_: Sequence[Assignment]) -> Sequence[Report]:
        self.dealt.append(tuple(sorted(one.partition for one in all_)))
        return task.run_sessions(all_, destination)

    async def run(self) -> None:
        await self.driver.run(StreamLayout(2), 2, self.stop)

    async def close(self) -> None:
        await self.connection.close()

    async def send(self, text: bytes) -> None:
        for one, host in zip(self.partitions, HOSTS, strict=True):
            await asyncio.to_thread(one.lines, host, text)

    def has(self, number: int, expected: bytes) -> Callable[[], bool]:
        return lambda: self.partitions[number].read(HOSTS[number]) == expected

    def advice(self) -> str:
        """Return why partition 0 is blocked, empty while it is not."""
        blocked = self.meter.expect(0).blocked
        return blocked.detail if blocked and blocked.cause.value == "state" else ""
