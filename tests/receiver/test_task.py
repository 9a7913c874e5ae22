"""A task's report on real files and a real broker."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from receiver.consume import task
from receiver.consume.assignment import Cause, Ending, SessionLimits
from receiver.storage.segments import SegmentCleaner, SegmentPolicy
from tests.descriptors import held_here
from tests.receiver.partition import Partition, blocked
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def test_an_offset_of_an_earlier_epoch_blocks_the_partition(partition: Partition) -> None:
    partition.lines("web01", b"one")

    blocked(partition.run(1, 2), Cause.STATE, "epoch 1", "replica")
    assert not partition.output.joinpath("web01.log").exists()


@pytest.mark.parametrize(("report_within", "batches"), [(0.0, 2), (60.0, 3)])
def test_a_session_with_news_ends_early(
    partition: Partition, report_within: float, batches: int
) -> None:
    partition.lines("web01", b"one")
    partition.publish(("logs.p0.web01", b"no zstd", {"Content-Encoding": "zstd"}))
    partition.lines("web01", b"three")

    report = replace(partition, limit=1, pull=1).session(
        SessionLimits(60, 0.1, report_within=report_within)
    )

    assert report.batches == batches
    assert report.outcome is (Ending.TIME if report_within == 0.0 else Ending.SILENCE)


def test_lines_are_readable_before_they_are_committed_together(partition: Partition) -> None:
    limits = SessionLimits(60, 60, gather=60)
    assignment = replace(partition.assignment(session=limits), leave="leave.now")
    with ThreadPoolExecutor(1) as thread:
        report = thread.submit(task.run_session, assignment, partition.destination)
        for line in (b"one", b"two"):
            partition.lines("web01", line)
            written = partial(lambda line: line in partition.read("web01"), line)
            wait_until("it can be read", written, 30)
        before = partition.offset().next
        partition.ask(lambda connection: connection.publish("leave.now"))
        ended = report.result(30)

    assert (before, partition.offset().next) == (1, 3)
    assert partition.read("web01") == b"one\ntwo\n"
    assert (ended.outcome, ended.batches, ended.done.lines) == (Ending.ASKED, 1, 2)


def test_others_may_use_the_store_during_a_session(partition: Partition) -> None:
    small = replace(partition, rotate_size=4)
    assignment = replace(small.assignment(session=SessionLimits(60, 60)), leave="leave.now")
    with ThreadPoolExecutor(1) as thread:
        report = thread.submit(task.run_session, assignment, small.destination)
        small.lines("web01", b"one", b"two")
        wait_until("it is committed", lambda: small.offset().next == 3, 30)
        small.lines("web01", b"six")
        wait_until("more is committed", lambda: small.offset().next == 4, 30)

        known = small.sql("SELECT path, length FROM files")
        SegmentCleaner(SegmentPolicy(small.output, small.state, "zstd"), lambda: 0).clean(
            lambda: False
        )
        small.lines("web01", b"ten")
        wait_until("all is committed", lambda: small.offset().next == 5, 30)
        small.ask(lambda connection: connection.publish("leave.now"))
        ended = report.result(60)

    assert known == [("web01.log", 4)]
    assert (ended.outcome, ended.done.lines) == (Ending.ASKED, 4)
    assert sorted(small.files()) == [
        "web01.log",
        "web01.log.000001.zst",
        "web01.log.000002.zst",
        "web01.log.000003",
    ]


@pytest.mark.parametrize("is_in_memory", [True, False], ids=["each", "all"])
def test_more_hosts_than_descriptors_are_written_whole(
    partition: Partition, tmp_path: Path, *, is_in_memory: bool
) -> None:
    """Whether each file is synced, as on a tmpfs, or the file system that holds them all."""
    memory = Path("/dev/shm") if is_in_memory and os.access("/dev/shm", os.W_OK) else tmp_path
    with TemporaryDirectory(dir=memory) as folder:
        small = partition.with_folder(Path(folder, "own"))
        hosts = [f"host{n}" for n in range(260)]
        messages = [
            (f"logs.p{small.number}.{host}", b"%d of %s     " % (number, host.encode()), None)
            for number in range(2)
            for host in hosts
        ]
        before = held_here()
        small.publish(*messages)

        small.receive()

        for host in hosts:
            expected = b"".join(b"%d of %s     \n" % (n, host.encode()) for n in range(2))
            assert small.read(host) == expected
    assert held_here() <= before + 4  # the broker's connection
