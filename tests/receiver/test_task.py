"""A task's sessions on real files: what they report, and how files of silent hosts are closed."""

import os
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from receiver.consume.assignment import Cause, Ending, SessionLimits
from receiver.storage.segments import SegmentCleaner, SegmentPolicy
from tests.descriptors import held_here
from tests.receiver.partition import Message, Partition, blocked, ours
from tests.receiver.points import IN_BATCH
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def test_an_offset_of_an_earlier_epoch_blocks_the_partition(partition: Partition) -> None:
    partition.lines("web01", b"one")

    blocked(partition.run(1, 2), Cause.STATE, "epoch 1", "replica")
    assert not partition.output.joinpath("web01.log").exists()


@pytest.mark.parametrize(
    ("report_within", "batches", "outcome"), [(0.0, 2, Ending.TIME), (60.0, 3, Ending.SILENCE)]
)
def test_a_session_with_news_ends_early(
    partition: Partition, report_within: float, batches: int, outcome: Ending
) -> None:
    partition.lines("web01", b"one")
    partition.publish(("logs.p0.web01", b"no zstd", {"Content-Encoding": "zstd"}))
    partition.lines("web01", b"three")

    session = SessionLimits(60, 2.0, report_within=report_within)
    report = replace(partition, limit=1, pull=1).session(session)

    assert (report.batches, report.outcome) == (batches, outcome)


def test_lines_are_readable_before_they_are_committed_together(partition: Partition) -> None:
    with partition.long_session(commit_every=60) as report:
        for line in (b"one", b"two"):
            partition.lines("web01", line)
            written = partial(lambda line: line in partition.read("web01"), line)
            wait_until("it can be read", written, 30)
        before = partition.offset().next

    assert (before, partition.offset().next) == (1, 3)
    assert partition.read("web01") == b"one\ntwo\n"
    ended = report.result()
    assert (ended.outcome, ended.batches, ended.done.lines) == (Ending.ASKED, 1, 2)


def test_others_may_use_the_store_during_a_session(partition: Partition) -> None:
    small = replace(partition, rotate_size=4)
    cleaner = SegmentCleaner(SegmentPolicy(small.output, small.state, "zstd"), lambda: 0)
    with small.long_session() as report:
        small.lines("web01", b"one", b"two")
        small.wait_until_committed(3)
        small.lines("web01", b"six")
        small.wait_until_committed(4)

        known = small.sql("SELECT path, length FROM files")
        cleaner.clean(lambda: False)
        small.lines("web01", b"ten")
        small.wait_until_committed(5)

    assert known == [("web01.log", 4)]
    assert (report.result().outcome, report.result().done.lines) == (Ending.ASKED, 4)
    closed = [f"web01.log.{end}" for end in ("000001.zst", "000002.zst", "000003")]
    assert sorted(small.files()) == ["web01.log", *closed]


@pytest.mark.parametrize("is_in_memory", [True, False], ids=["each is synced", "all at once"])
def test_more_hosts_than_descriptors_are_written_whole(
    partition: Partition, tmp_path: Path, *, is_in_memory: bool
) -> None:
    memory = Path("/dev/shm") if is_in_memory and os.access("/dev/shm", os.W_OK) else tmp_path
    with TemporaryDirectory(dir=memory) as folder:
        small = partition.with_folder(Path(folder, "own"))
        sent = [(f"host{n}", b"%d of %d\n" % (round_, n)) for round_ in (0, 1) for n in range(260)]
        before = held_here()
        small.publish(*((f"logs.p0.{host}", line, None) for host, line in sent))

        small.receive()

        for host in {host for host, _ in sent}:
            assert small.read(host) == b"".join(line for of, line in sent if of == host)
    assert held_here() <= before + 4  # the broker's connection


WEEK = timedelta(days=7)  # a period rarely ends during a test
CLOSED = "web01.log.000001"


def age(partition: Partition) -> None:
    """Make the last line of web01 as old as if it had come in an earlier period."""
    query = "UPDATE files SET last_line = last_line - 1000000 * 1000000000 WHERE host = 'web01'"
    partition.sql(query)


@pytest.fixture
def weekly(partition: Partition) -> Partition:
    """Return a partition that has received an old line of web01 and a new one of web02."""
    weekly = replace(partition, rotate_every=WEEK)
    weekly.lines("web01", b"old\n")
    weekly.lines("web02", b"new\n")
    weekly.receive()
    age(weekly)
    weekly.lines("web02", b"newer\n")
    return weekly


def test_another_hosts_first_line_in_a_new_period_closes_a_silent_file(weekly: Partition) -> None:
    assert weekly.receive(3).closed == (CLOSED,)
    assert (weekly.output / CLOSED).read_bytes() == b"old\n"
    assert (weekly.output / "web02.log").read_bytes() == b"new\nnewer\n"

    weekly.lines("web01", b"later\n")
    weekly.lines("web02", b"newest\n")
    assert weekly.receive(4).closed == ()
    assert weekly.read("web01") == b"old\nlater\n"


def test_without_a_period_nothing_is_closed(weekly: Partition) -> None:
    assert replace(weekly, rotate_every=timedelta()).receive(3).closed == ()


@pytest.mark.parametrize("point", IN_BATCH)
def test_a_task_killed_closing_a_silent_file_is_completed(weekly: Partition, point: str) -> None:
    assert weekly.run_apart(3, fault=point) == -9
    weekly.take_over_and_receive()
    weekly.lines("web01", b"later\n")
    weekly.receive(4, epoch=2)

    assert weekly.read("web01") == b"old\nlater\n"
    assert (weekly.output / CLOSED).read_bytes() == b"old\n"
    assert weekly.read("web02") == b"new\nnewer\n"


@pytest.mark.parametrize("point", ["", "rotated", "stored"])
@pytest.mark.parametrize(
    ("rest", "whole"),
    [
        (ours("web01", "a", 5, b"rest\n"), b"begunrest\n"),
        (ours("web01", "b", 0, b"two\n"), b"begun\ntwo\n"),
    ],
    ids=["the line goes on", "another file"],
)
def test_an_unfinished_line_is_continued_in_the_next_segment(
    partition: Partition, point: str, rest: Message, whole: bytes
) -> None:
    weekly = replace(partition, rotate_every=WEEK)
    weekly.publish(ours("web01", "a", 0, b"begun"))
    weekly.receive()
    age(weekly)
    weekly.lines("web02", b"new\n")
    if point:
        assert weekly.run_apart(2, fault=point) == -9
    weekly.receive(2)
    weekly.lines("web02", b"newer\n")
    weekly.receive(3)

    weekly.publish(rest)
    weekly.receive(4)

    assert (weekly.output / CLOSED).read_bytes() == b"begun"
    assert weekly.read("web01") == whole


def test_a_long_session_closes_silent_files_at_each_period(partition: Partition) -> None:
    every_second = replace(partition, rotate_every=timedelta(seconds=1))
    every_second.lines("web01", b"1\n")

    def is_closed() -> bool:
        every_second.lines("web02", b"line\n")
        return (every_second.output / CLOSED).exists()

    with every_second.long_session() as report:
        wait_until("the file of the silent host is closed", is_closed, 30)
        assert not report.done()
    assert (every_second.output / CLOSED).read_bytes() == b"1\n"
    assert every_second.offset().next > 2
