"""A task's report on real files and a real broker."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

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


@pytest.mark.parametrize(
    ("report_within", "batches", "outcome"), [(0.0, 2, Ending.TIME), (60.0, 3, Ending.SILENCE)]
)
def test_a_session_with_news_ends_early(
    partition: Partition, report_within: float, batches: int, outcome: Ending
) -> None:
    partition.lines("web01", b"one")
    partition.publish(("logs.p0.web01", b"no zstd", {"Content-Encoding": "zstd"}))
    partition.lines("web01", b"three")

    session = SessionLimits(60, 0.1, report_within=report_within)
    report = replace(partition, limit=1, pull=1).session(session)

    assert (report.batches, report.outcome) == (batches, outcome)


def test_lines_are_readable_before_they_are_committed_together(partition: Partition) -> None:
    with partition.long_session(gather=60) as report:
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
