"""The partitions of a receiver with everything real but Spark: tasks run in a thread here."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.streams import STREAM, StreamLayout
from receiver.consume import task
from receiver.consume.assignment import Assignment, Destination, Report
from receiver.driver.driver import Followers
from receiver.driver.presence import Presence
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from tests.receiver.partition import Partition
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


class Receiver:
    """A receiver of two partitions; tasks of the second wait until they may run."""

    def __init__(self, url: str, folder: Path, *, once: bool) -> None:
        self.connection = Connection([url], "a:1")
        self.meter = Meter(time.time_ns)
        self.stop = asyncio.Event()
        self.may_run = threading.Event()
        settings = ReceiverSettings(
            partition=("all",),
            server=(url,),
            output=folder / "out",
            state_dir=folder / "state",
            once=once,
        )
        presence = Presence(self.connection, lambda: b"")
        self.followers = Followers(
            settings, self.connection, "a:1", presence, self.meter, (), self._run, 2
        )

    def _run(self, destination: Destination, assignment: Assignment) -> Report:
        if assignment.partition == 1:
            self.may_run.wait(60)
        return task.run(assignment, destination)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            self.followers.follow(StreamLayout(2), 2, group)
            running = group.create_task(self.followers.run(self.stop))
            try:
                yield group
                await running
            finally:
                self.may_run.set()
                self.followers.close()
        await self.connection.close()


async def until(what: str, condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, what, condition, 20, ())


async def publish(url: str, folder: Path) -> None:
    for number in (0, 1):
        await asyncio.to_thread(Partition(url, folder, number).lines, f"web{number}", b"1")


async def test_once_a_partition_that_is_done_is_not_claimed_again(
    logs_url: str, tmp_path: Path
) -> None:
    await publish(logs_url, tmp_path)
    receiver = Receiver(logs_url, tmp_path, once=True)
    async with receiver.following() as group:
        first = receiver.meter.partitions[0]
        await until("partition 0 is received", lambda: first.lines == 1)
        await asyncio.sleep(1)  # it finds that nothing is left
        receiver.followers.follow(StreamLayout(2), 2, group)
        await asyncio.sleep(1)
        epoch = first.epoch
        receiver.may_run.set()

    assert epoch == 1
    assert receiver.meter.partitions[1].lines == 1


async def test_a_partition_that_was_taken_over_leaves_no_consumer_behind(
    logs_url: str, tmp_path: Path
) -> None:
    receiver = Receiver(logs_url, tmp_path, once=False)
    receiver.may_run.set()
    async with receiver.following():
        standings = receiver.meter.partitions
        await until("both are claimed", lambda: all(one.epoch for one in standings.values()))
        await asyncio.to_thread(Partition(logs_url, tmp_path, 0).move, 1, 9, "b:2")
        await until("one is lost", lambda: "b:2" in standings[0].successor)
        async with asyncio.timeout(20):
            names = f"CONSUMER.NAMES.{STREAM}"
            while "p0" in str(await receiver.connection.api(names)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        receiver.stop.set()
