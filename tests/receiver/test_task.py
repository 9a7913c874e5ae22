"""What a task answers, on real files and a real broker: done, blocked with a text, or superseded."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume.assignment import Cause, Done, Ending, SessionLimits, Superseded
from receiver.storage.disk import exclusive_lock
from receiver.storage.retention import Order, Retention
from tests.receiver.partition import Partition, blocked, ours
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def test_lines_of_every_host_are_written_whole_and_in_order(partition: Partition) -> None:
    partition.lines("web01", b"one\ntwo\n", b"three")
    partition.publish(ours("db.example.net", "a", 0, b"first\n"), ours("web01", "a", 7, b"four\n"))

    done = partition.run()

    assert isinstance(done, Done)
    assert (done.until, done.messages, done.lines) == (5, 4, 5)
    assert partition.files() == {
        "web01.log": b"one\ntwo\nthree\nfour\n",
        "db.example.net.log": b"first\n",
    }


def test_an_empty_range_is_done_at_once_and_touches_nothing(partition: Partition) -> None:
    done = partition.run()

    assert done == Done(0, 1, 1)
    assert partition.files() == {}


def test_a_range_that_retention_has_emptied_is_passed_over(partition: Partition) -> None:
    last = partition.lines("web01", *(b"%d" % n for n in range(5)))
    partition.ask(lambda c: c.api("STREAM.PURGE.LOGS"))

    assert partition.run() == Done(0, 1, 1)
    partition.lines("web01", b"after")

    done = partition.run()
    assert isinstance(done, Done)
    assert done.until == last + 2
    assert partition.read("web01") == b"after\n"


def test_an_older_epoch_is_superseded_and_touches_nothing(partition: Partition) -> None:
    partition.lines("web01", b"one")
    partition.move(1, 2, "other:7")

    outcome = partition.run(1, 1)

    assert isinstance(outcome, Superseded)
    assert "other:7" in outcome.detail
    assert partition.files() == {}


def test_a_partition_whose_offset_was_deleted_is_superseded(partition: Partition) -> None:
    async def delete(connection: object) -> None:
        await connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})  # type: ignore[attr-defined]

    partition.ask(delete)

    assert isinstance(partition.run(), Superseded)


def test_an_offset_of_an_earlier_epoch_blocks_as_it_may_only_be_a_late_replica(
    partition: Partition,
) -> None:
    partition.lines("web01", b"one")

    blocked(partition.run(1, 2), Cause.STATE, "epoch 1", "replica")
    assert not partition.output.joinpath("web01.log").exists()


@pytest.mark.parametrize(
    "entry", [b"", b"{}", b'{"version":1}', b'{"version":1,"next":"x"}', b"[1]", b'{"version":9}']
)
def test_an_unreadable_offset_blocks(partition: Partition, entry: bytes) -> None:
    async def damage(connection: object) -> None:
        await connection.ask("$KV.LOGS_OFFSETS.p0", entry)  # type: ignore[attr-defined]

    partition.ask(damage)

    blocked(partition.run(), Cause.STATE)


def test_a_lock_that_another_process_holds_blocks(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.lines("web01", b"one")
    partition.state.mkdir()
    monkeypatch.setattr("receiver.consume.task._LOCK_PATIENCE", 0.1)

    with exclusive_lock(partition.state / "p0.lock", 0):
        outcome = partition.run()

    blocked(outcome, Cause.LOCKED, "p0.lock")
    assert isinstance(partition.run(), Done)


def test_a_broker_that_is_not_there_blocks(partition: Partition, free_port: object) -> None:
    away = replace(partition, url=f"nats://127.0.0.1:{free_port()}")  # type: ignore[operator]

    blocked(away.run(), Cause.BROKER)


def test_a_stream_that_is_gone_blocks(partition: Partition) -> None:
    partition.ask(lambda c: c.api("STREAM.DELETE.LOGS"))

    blocked(partition.run(), Cause.BROKER)


@pytest.mark.parametrize(("telling", "batches"), [(0.0, 1), (60.0, 3)])
def test_a_stay_that_is_behind_lasts_only_until_it_has_told_how_far_it_is(
    partition: Partition, telling: float, batches: int
) -> None:
    partition.lines("web01", b"one", b"two", b"three")

    report = replace(partition, limit=1, pull=1).session(SessionLimits(60, 0.1, telling=telling))

    assert report.batches == batches
    assert report.ended is (Ending.TIME if telling == 0.0 else Ending.SILENCE)


def test_a_stay_leaves_early_to_tell_of_a_segment_that_it_has_closed(partition: Partition) -> None:
    partition.lines("web01", b"one", b"two")

    small = replace(partition, rotate_size=4)
    small.run()
    report = small.session(SessionLimits(60, 60, telling=0.0), 2)

    assert report.ended is Ending.TIME
    assert report.done.closed == ("web01.log.000001",)


def test_a_person_and_retention_may_use_the_store_while_a_task_stays(partition: Partition) -> None:
    small = replace(partition, rotate_size=4)
    with ThreadPoolExecutor(1) as thread:
        report = thread.submit(small.session, SessionLimits(60, 4))
        small.lines("web01", b"one", b"two")
        wait_until("it is committed", lambda: small.offset().next == 3, 30)
        small.lines("web01", b"six")
        wait_until("more is committed", lambda: small.offset().next == 4, 30)

        known = small.sql("SELECT path, length FROM files")
        Retention(Order(small.output, small.state, "zstd"), lambda: 0).tidy(lambda: False)
        small.lines("web01", b"ten")
        ended = report.result(60)

    assert known == [("web01.log", 4)]
    assert (ended.ended, ended.done.lines) == (Ending.SILENCE, 4)
    assert sorted(small.files()) == [
        "web01.log",
        "web01.log.000001.zst",
        "web01.log.000002.zst",
        "web01.log.000003",
    ]
