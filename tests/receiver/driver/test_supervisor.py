"""A partition's loop with everything real but Spark: tasks run in a thread here."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from nats_logship.app.exits import FencedError, OperatorError
from nats_logship.app.locks import exclusive_lock
from nats_logship.client.stream_state import get_stream_state
from nats_logship.wire.streams import OFFSETS_BUCKET, STREAM
from receiver.consume import task
from receiver.consume.assignment import (
    Assignment,
    Blocked,
    Cause,
    Destination,
    Ending,
    Report,
    SessionLimits,
)
from receiver.consume.claim import Claim, move_offset
from tests.conftest import Server
from tests.receiver.partition import Partition
from tests.receiver.supervised import RequestCounter, Supervised

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, tzinfo=UTC)
_LONG = SessionLimits(3600.0, 3600.0, 0.01)


async def lines(partition: Partition, *payloads: bytes) -> int:
    return await asyncio.to_thread(partial(partition.lines, "web01", *payloads))


async def test_lines_are_committed_at_once_and_silent_files_closed(partition: Partition) -> None:
    async with Supervised(partition) as loop:
        await lines(partition, b"1", b"2")
        await loop.has(b"1\n2\n")
        await lines(partition, b"3")
        await loop.has(b"1\n2\n3\n")

    async with Supervised(partition, "b:2", once=True) as loop:
        await loop.ends()
        info = await loop.connection.api("CONSUMER.INFO.LOGS.receiver-p0")
    assert loop.jobs == 0
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (3, 0)

    partition.sql("UPDATE files SET last_line = last_line - 10000 * 1000000000")
    async with Supervised(replace(partition, rotate_every=timedelta(hours=1)), "c:3") as loop:
        await asyncio.wait_for(loop.shared.closed.wait(), 20)
    assert (partition.output / "web01.log.000001").read_bytes() == b"1\n2\n3\n"


async def test_once_gives_up_if_a_person_has_to_act(partition: Partition) -> None:
    await lines(partition, b"1")
    partition.output.mkdir()
    (partition.output / "web01.log").symlink_to("/nowhere")

    async with Supervised(partition, once=True) as loop:
        with pytest.raises(OperatorError, match=r"web01\.log: is a symbolic link"):
            await loop.ends()


async def test_a_recreated_stream_blocks_until_the_offset_is_reset(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    async with Supervised(partition, often=True) as loop:
        await lines(partition, b"1", b"2")
        await loop.has(b"1\n2\n")
        await asyncio.to_thread(partition.make_stream_anew)
        await lines(partition, *(b"again" for _ in range(5)))

        await loop.until(lambda: "recreated" in caplog.text)
        await RequestCounter(loop.connection).wait(8)  # it tries again

        assert not loop.running.done()
        assert caplog.text.count("recreated") == 1
        assert "offsets set --partition 0 --to earliest" in caplog.text
        assert partition.read("web01") == b"1\n2\n"

        offset = await asyncio.to_thread(partition.offset)
        stream = await get_stream_state(loop.connection, STREAM)
        by_hand = move_offset(offset, stream, 1, "root by hand", "")
        await loop.connection.ask("$KV.LOGS_OFFSETS.p0", by_hand.encode())
        with pytest.raises(FencedError, match="root by hand"):
            await loop.ends()


async def test_a_task_that_does_not_report_is_logged_and_waited_for(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    loop = Supervised(partition, session=SessionLimits(0.1, 0.1))
    loop.shared.limits = replace(loop.shared.limits, patience=0.1)
    loop.may_run.clear()

    async with loop:
        await lines(partition, b"one\n")
        await loop.until(lambda: "no report of its task" in caplog.text)
        assert json.loads(loop.meter.report())["0"]["starting"]
        loop.may_run.set()
        await loop.has(b"one\n")

    assert not json.loads(loop.meter.report())["0"]["starting"]
    told = [record.getMessage() for record in caplog.records]
    words = [words for words in told if "no report of its task" in words]
    assert len(words) <= 1 + told.count("partition 0: resumed"), "once, until it goes on"
    assert "partition 0: resumed" in told


async def test_a_task_that_commits_is_not_logged_as_hanging(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    loop, enough = Supervised(partition, session=SessionLimits(0.1, 0.1)), threading.Event()
    loop.shared.limits = replace(loop.shared.limits, patience=10.0)

    def work(assignments: Sequence[Assignment]) -> list[Report]:
        assignment = assignments[0]
        report = task.run_session(assignment, partition.destination)
        while not enough.is_set():
            partition.lines("web01", b"one more\n")
            assignment = replace(assignment, first=report.done.until)
            report = task.run_session(assignment, partition.destination)
        return [report]

    loop.slot.run_task = work
    async with loop:
        await lines(partition, b"one\n")
        await loop.until(lambda: loop.meter.sorted_partitions[0].next > 2)
        enough.set()
        await loop.until(lambda: loop.meter.sorted_partitions[0].batches > 0)

    assert "no report" not in caplog.text


@pytest.mark.parametrize("is_held", [True, False], ids=["lock", "output"])
async def test_without_tasks_a_takeover_is_noticed(partition: Partition, *, is_held: bool) -> None:
    soon = SessionLimits(60.0, 0.3, 0.01, lock=0.1)
    async with Supervised(partition, often=True, session=soon) as older:
        await lines(partition, b"1")
        await older.has(b"1\n")
        lock = partition.destination.state / "p0.lock"
        with exclusive_lock(lock, 20.0) if is_held else unreachable(partition):
            await Claim(older.connection, 0, "newer", "LOGS").claim(NOW)
            await lines(partition, b"2")
            with pytest.raises(FencedError, match=r"newer has taken it|belongs to newer by now"):
                await older.ends()


@contextmanager
def unreachable(partition: Partition) -> Iterator[None]:
    away = partition.output.with_name("away")
    partition.output.rename(away)
    partition.output.write_bytes(b"a file where the folder should be")
    yield
    partition.output.unlink()
    away.rename(partition.output)


@pytest.mark.parametrize("keep", [0, 1], ids=["all", "all_but_one"])
async def test_messages_removed_while_a_partition_is_blocked_are_logged(
    partition: Partition, caplog: pytest.LogCaptureFixture, keep: int
) -> None:
    async with Supervised(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        with unreachable(partition):
            await lines(partition, b"2", b"3", b"4")
            await loop.until(lambda: loop.meter.sorted_partitions[0].blocked is not None)
            await loop.connection.api("STREAM.PURGE.LOGS", {"keep": keep})
            await RequestCounter(loop.connection).wait(20)
        await loop.until(lambda: loop.meter.sorted_partitions[0].blocked is None)
        assert partition.read("web01") == (b"1\n4\n" if keep else b"1\n")
        await lines(partition, b"5")
        await loop.until(lambda: partition.read("web01").endswith(b"5\n"))
    removed = f"messages of the partition from sequence 2 to {4 - keep}, if there were any"
    assert caplog.text.count(removed) == caplog.text.count("if there were any") == 1


async def test_removed_messages_of_other_partitions_are_no_loss(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(partition, number=1)
    async with Supervised(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        await lines(other, b"2", b"3")
        await RequestCounter(loop.connection).wait(20)  # the partition is known to be silent
        with unreachable(partition):
            await lines(partition, b"4")
            await loop.until(lambda: loop.meter.sorted_partitions[0].blocked is not None)
            await loop.connection.api("STREAM.PURGE.LOGS", {"seq": 4})
        await loop.has(b"1\n4\n")
    assert "if there were any" not in caplog.text


async def test_a_deleted_bucket_blocks_the_partition_once_it_is_made_again(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"KV_{OFFSETS_BUCKET}"
    async with Supervised(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        config = (await loop.connection.api(f"STREAM.INFO.{name}"))["config"]
        await loop.connection.api(f"STREAM.DELETE.{name}")
        await lines(partition, b"2")
        await loop.until(lambda: loop.meter.sorted_partitions[0].blocked is not None)
        await loop.connection.api(f"STREAM.CREATE.{name}", config)

        await loop.until(lambda: "key p0 of bucket LOGS_OFFSETS is gone" in caplog.text)
        # the session that was under way may have written the second line, which is not committed
        assert partition.read("web01") in {b"1\n", b"1\n2\n"}


async def test_a_stop_without_the_broker_ends_soon(own_broker: Server, tmp_path: Path) -> None:
    async with Supervised(partition := Partition(own_broker.url, tmp_path), often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        await loop.until(lambda: len(loop.reports) >= 2)
        await asyncio.to_thread(own_broker.stop)

        loop.stop.set()
        async with asyncio.timeout(9.5):  # all of a program's end has ten
            await asyncio.shield(loop.running)
            await loop.supervisor.wake.close()


async def end_tasks(loop: Supervised) -> None:
    while True:
        loop.slot.end_task()
        await asyncio.sleep(0.05)


async def join_long_task(loop: Supervised) -> None:
    """Have a line received; return while a session joins a task that lasts for an hour.

    Not every first task has received the line: the timer is due at a start, and ends it.
    """
    await lines(loop.partition, b"1")
    await loop.has(b"1\n")
    ending = asyncio.create_task(end_tasks(loop))
    await loop.until(lambda: loop.meter.sorted_partitions[0].batches > 0)
    async with asyncio.timeout(40):
        await loop.slot.joining.wait()
    ending.cancel()


async def test_a_request_made_while_sessions_join_a_task_ends_it(partition: Partition) -> None:
    async with Supervised(partition, often=True, session=_LONG) as loop:
        await join_long_task(loop)
        loop.supervisor.timer.asked.set()
        await loop.until(loop.shared.closed.is_set)
    assert (partition.output / "web01.log.000001").read_bytes() == b"1\n"


async def test_a_session_dealt_away_while_it_joins_a_task_moves(partition: Partition) -> None:
    async with Supervised(partition, often=True, session=_LONG, slots=2, index=1) as loop:
        await join_long_task(loop)
        first, _second = loop.shared.slots
        loop.shared.use_slots(1)
        await loop.until(lambda: first.has_reported)


async def test_sessions_that_get_nothing_make_the_consumer_again_now_and_then(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals, run = list[bool](), task.run_sessions

    def get_nothing(all_: Sequence[Assignment], destination: Destination) -> Sequence[Report]:
        renewals.extend(one.renew for one in all_)
        if len(renewals) == 7:
            return run(all_, destination)
        outcome = Blocked(Cause.BROKER, "no answer") if len(renewals) < 4 else Ending.SILENCE
        return [Report(one.nothing, 0, outcome) for one in all_]

    monkeypatch.setattr(task, "run_sessions", get_nothing)
    async with Supervised(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
    assert renewals[:7] == [False, False, True, False, False, False, True]
