"""A partition's loop with everything real but Spark: tasks run in a thread here."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from broker.app.exits import FencedError, OperatorError
from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import STREAM
from receiver.consume import task
from receiver.consume.assignment import LARGEST_PULL, Assignment, Report, SessionLimits
from receiver.consume.claim import Claim
from receiver.driver.follower import Pace, PartitionFollower, Shared
from receiver.meter import Meter
from receiver.storage.rotation import Calendar
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, tzinfo=UTC)
OFTEN = {"pause": 0.05, "check": 0.1, "look_around": 0.1}


class Loop:
    """A follower of a partition, and how many jobs it has run."""

    def __init__(
        self,
        partition: Partition,
        owner: str = "a:1",
        *,
        once: bool = False,
        often: bool = False,
        session: SessionLimits = SessionLimits(60.0, 0.3, 0.01),  # noqa: B008 - a frozen value
    ) -> None:
        self.partition = partition
        self.jobs = 0
        self.may_run = threading.Event()
        self.may_run.set()
        self.reports: list[Report] = []
        self.connection = Connection([partition.url], owner, partition.access)
        self.meter = Meter(lambda: 0)
        pace = Pace(
            *(partition.limit, LARGEST_PULL, SessionLimits(60.0) if once else session, once),
            **(OFTEN if often else {}),
        )
        calendar = Calendar(timedelta(hours=1))
        self.shared = Shared(
            self.connection, self._run, ThreadPoolExecutor(1), time.time_ns, calendar, pace
        )
        self.follower = PartitionFollower(
            self.shared,
            Claim(self.connection, partition.number, owner, "LOGS"),
            self.meter.expect(partition.number),
        )
        self.stop = self.follower.stop

    def _run(self, assignment: Assignment) -> Report:
        self.jobs += 1
        self.may_run.wait(60)
        report = task.run(assignment, self.partition.destination)
        self.reports.append(report)
        return report

    async def __aenter__(self) -> "Loop":
        self.running = asyncio.create_task(self.follower.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        try:
            async with asyncio.timeout(20):
                await asyncio.wait({self.running})
        finally:
            await self.follower.close()
            await self.connection.close()

    async def ends(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.running), 20)

    async def has(self, expected: bytes, host: str = "web01") -> None:
        async with asyncio.timeout(20):
            while self.partition.read(host) != expected:
                assert not self.running.done(), self.running
                await asyncio.sleep(0.02)


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path)


async def lines(partition: Partition, *payloads: bytes) -> int:
    return await asyncio.to_thread(partial(partition.lines, "web01", *payloads))


async def test_lines_are_written_committed_and_acknowledged_as_they_come(
    partition: Partition,
) -> None:
    async with Loop(partition) as loop:
        await lines(partition, b"1", b"2")
        await loop.has(b"1\n2\n")
        await lines(partition, b"3")
        await loop.has(b"1\n2\n3\n")

    async with Loop(partition, "b:2", once=True) as loop:
        await loop.ends()
        info = await loop.connection.api("CONSUMER.INFO.LOGS.receiver-p0")
    assert loop.jobs == 0
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (3, 0)


async def test_a_silent_hosts_file_of_an_earlier_period_is_closed_by_the_clock(
    partition: Partition,
) -> None:
    async with Loop(partition, "a:1") as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
    partition.sql("UPDATE files SET last_line = last_line - 10000 * 1000000000")
    hourly = replace(partition, rotate_every=timedelta(hours=1))

    async with Loop(hourly, "b:2") as loop:
        await asyncio.wait_for(loop.shared.closed.wait(), 20)
    assert (partition.output / "web01.log.000001").read_bytes() == b"1\n"


async def test_a_blocked_partition_says_so_once_and_goes_on_when_mended(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    partition.output.mkdir()
    obstacle = partition.output / "web01.log"
    obstacle.mkdir()
    async with Loop(partition, often=True) as loop:
        await lines(partition, b"1")
        async with asyncio.timeout(20):
            while loop.jobs < 4:  # noqa: ASYNC110 - a thread's doing is waited for
                await asyncio.sleep(0.02)
        obstacle.rmdir()
        await loop.has(b"1\n")
        await lines(partition, b"2")
        await loop.has(b"1\n2\n")

    told = [r.getMessage() for r in caplog.records if r.name == "receiver.meter"]
    assert len([text for text in told if "is blocked" in text]) == 1
    assert len([text for text in told if "resumed" in text]) == 1


async def test_once_gives_up_on_what_only_a_person_can_mend(partition: Partition) -> None:
    await lines(partition, b"1")
    partition.output.mkdir()
    (partition.output / "web01.log").symlink_to("/nowhere")

    async with Loop(partition, once=True) as loop:
        with pytest.raises(OperatorError, match=r"web01\.log: is a symbolic link"):
            await loop.ends()


async def test_a_stream_that_is_not_there_yet_is_waited_for(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    made = Topology(partitions=2).streams()[0]
    await asyncio.to_thread(partition.ask, lambda c: c.api("STREAM.DELETE.LOGS"))
    async with Loop(partition) as loop:
        await _until_said(caplog, "logbroker apply")
        await asyncio.to_thread(partition.ask, lambda c: c.api("STREAM.CREATE.LOGS", made))
        await lines(partition, b"1")
        await loop.has(b"1\n")

    assert len([r for r in caplog.records if "logbroker apply" in r.getMessage()]) == 1


async def _until_said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    for _ in range(1000):
        if words in caplog.text:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(caplog.text)


async def test_a_stream_made_anew_under_a_running_receiver_is_told_once_and_nothing_written(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    async with Loop(partition, often=True) as loop:
        await lines(partition, b"1", b"2")
        await loop.has(b"1\n2\n")
        config = (await loop.connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        await loop.connection.api(f"STREAM.DELETE.{STREAM}")
        await loop.connection.api(f"STREAM.CREATE.{STREAM}", config)
        await lines(partition, *(b"anew" for _ in range(5)))

        await _until_said(caplog, "made anew")
        await asyncio.sleep(0.5)

        assert not loop.running.done()
        assert caplog.text.count("made anew") == 1
        assert "offsets set --partition 0 --to earliest" in caplog.text
        assert partition.read("web01") == b"1\n2\n"


async def test_a_successor_is_noticed_while_nothing_comes(partition: Partition) -> None:
    async with Loop(partition, often=True) as first:
        async with asyncio.timeout(20):
            while not first.connection.away and not first.meter.partitions[0].epoch:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        async with Loop(partition, "b:2"):
            with pytest.raises(FencedError, match="b:2"):
                await first.ends()


def is_said(log: pytest.LogCaptureFixture, words: str) -> None:
    while words not in log.text:
        time.sleep(0.02)


async def test_a_task_that_does_not_report_is_told_of_and_waited_for(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    loop = Loop(partition, session=SessionLimits(0.1, 0.1))
    loop.shared.pace = replace(loop.shared.pace, patience=0.1)
    loop.may_run.clear()

    async with loop:
        await lines(partition, b"one\n")
        async with asyncio.timeout(20):
            await asyncio.to_thread(is_said, caplog, "no report of its task")
        loop.may_run.set()
        await loop.has(b"one\n")

    told = [record.getMessage() for record in caplog.records]
    assert len([words for words in told if "no report of its task" in words]) == 1
    assert "partition 0: resumed" in told
