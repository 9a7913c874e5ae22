"""What a driver does beside its supervisors: it waits for a broker, runs jobs, closes files."""

import asyncio
import errno
import os
import subprocess
import threading
from datetime import timedelta
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from nats_logship.app.exits import OperatorError
from nats_logship.client.connection import Connection
from receiver.consume.assignment import Assignment, Blocked, Cause, Destination, ForcedRotation
from receiver.driver.driver import clean_segments
from receiver.driver.jobs import run_job, watch
from receiver.driver.partitions import wait_for_partitions
from receiver.driver.rotation_timer import RotationTimer
from receiver.driver.stopping import run_unless_stopped
from receiver.storage.rotation import Calendar
from receiver.storage.segments import Limits, SegmentCleaner, SegmentPolicy
from tests.receiver.stored import add
from tests.receiver.supervised import RequestCounter


@pytest.mark.nats
async def test_a_receiver_waits_for_a_broker_that_is_not_set_up(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"", {"KV-Operation": "DEL"})
    counter = RequestCounter(connection)
    waiting = asyncio.create_task(wait_for_partitions(connection, asyncio.Event(), None))
    await counter.wait(6)  # it asks again and again
    async with asyncio.timeout(60):
        while "waiting" not in caplog.text:  # noqa: ASYNC110 - for what is logged
            await asyncio.sleep(0.05)
    assert not waiting.done()

    await connection.ask("$KV.LOGS_CONFIG.partitions", b"7")

    found = await asyncio.wait_for(waiting, 20)
    assert found is not None
    assert found[0].partitions == 7
    assert caplog.text.count("run `logbroker apply`; waiting") == 1


JOB = Destination(Path("out"), Path("state"), 0, ()), [Assignment(3, 7, 1, 1)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_scratch_folder_blocks_the_partition_of_the_job(number: int) -> None:
    refusal = OSError(number, os.strerror(number), "scratch/tmp1")

    (report,) = run_job(MagicMock(**{"parallelize.side_effect": refusal}), *JOB)

    assert report.outcome == Blocked(Cause.DISK, f"Spark's scratch folder: {os.strerror(number)}")
    assert (report.done.first, report.done.until) == (7, 7)


@pytest.mark.parametrize(
    ("ends", "named"),
    [([0], "Java process has died"), (subprocess.TimeoutExpired("java", 1.0), "sockfile")],
)
def test_an_error_of_pyspark_is_the_jvms_death_if_that_has_died(ends: object, named: str) -> None:
    spark = MagicMock(**{"parallelize.side_effect": UnboundLocalError("sockfile")})
    spark._gateway.proc.wait.side_effect = ends

    with pytest.raises((OperatorError, UnboundLocalError), match=named):
        run_job(spark, *JOB)


def test_a_cluster_without_executors_ends_the_receiver() -> None:
    spark = MagicMock(master="spark://central:7077")
    spark._gateway.proc.poll.return_value = None
    spark.getConf().get.return_value = "false"
    spark._jsc.sc().getExecutorMemoryStatus().size.return_value = 1  # the driver

    with pytest.raises(OperatorError, match=r"has had no executor for us for 0\.3 s; start again"):
        asyncio.run(watch(spark, 0.3, 0.3))


HOUR, SECOND = 3_600_000_000_000, 1_000_000_000
NONE, DUE, ALL = ForcedRotation


def test_files_of_a_silent_partition_are_closed_once_a_period_or_on_request() -> None:
    now = [100 * HOUR + HOUR // 2]
    timer = RotationTimer(Calendar(timedelta(hours=1)), lambda: now[0])

    def taken(after: float = 0.0, *, is_silent: bool = True) -> ForcedRotation:
        now[0] += round(after * SECOND)
        return timer.take(is_silent=is_silent)

    assert [taken(is_silent=False), taken(), taken()] == [NONE, DUE, NONE]
    now[0] = 101 * HOUR
    assert [taken(), taken(1.0), taken(1.0), taken(1.0)] == [NONE, NONE, DUE, NONE]
    timer.retry(DUE)
    assert [taken(59.0), taken(1.0, is_silent=False), taken(), taken()] == [NONE, NONE, DUE, NONE]

    timer.asked.set()
    assert [taken(is_silent=False), taken(is_silent=False)] == [ALL, NONE]
    timer.retry(ALL)
    assert [taken(59.0), taken(1.0, is_silent=False), taken()] == [NONE, ALL, NONE]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("web*"))


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_closed_files_are_compressed_in_low_priority(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    names = [f"web01.log.{number:06d}" for number in range(1, 4)]
    for name in names:
        (tmp_path / name).write_bytes(b"line\n" * 1000)
    (tmp_path / "state").mkdir()
    add(tmp_path / "state", tmp_path, *names)
    niceness: list[int] = []

    def clock() -> int:
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return 0

    order = SegmentPolicy(tmp_path, tmp_path / "state", "zstd", Limits(9))
    asked, done, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    for event in (done, stop) if is_stopped else (done,):
        event.set()

    await clean_segments(SegmentCleaner(order, clock), asked, done, stop)

    assert names_in(tmp_path) == [name if is_stopped else f"{name}.zst" for name in names]
    assert all(one > os.getpriority(os.PRIO_PROCESS, 0) for one in niceness)
    assert is_stopped or niceness


@pytest.mark.parametrize("end", ["stop", "stop for a moment", "cancelled caller"])
async def test_a_call_has_ended_after_a_stop(end: str) -> None:
    stop, begun, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def call() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            if end == "stop for a moment":
                stop.clear()
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append("call")

    waiting = asyncio.ensure_future(run_unless_stopped(stop, call()))
    await begun.wait()
    waiting.cancel() if end == "cancelled caller" else stop.set()
    result = (await asyncio.gather(waiting, return_exceptions=True))[0]

    assert ended == ["call"]
    expected = asyncio.CancelledError if end == "cancelled caller" else type(None)
    assert type(result) is expected


async def test_the_result_or_error_of_a_stopped_call_is_not_lost() -> None:
    stop = asyncio.Event()

    async def call(error: Exception | None) -> str:
        stop.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error:
                raise error from None
        return "done"

    assert await run_unless_stopped(stop, call(None)) == "done"
    with pytest.raises(ValueError, match="lost"):
        await run_unless_stopped(stop, call(ValueError("lost")))
