"""A file a day: it stays as it is when its day is over, and is compressed and removed as closed ones are."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest
import zstandard

from receiver.consume.assignment import Done, ForcedRotation
from receiver.storage.layout import Layout
from receiver.storage.retention import Limits, Order, Retention
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats

TEMPLATE = "{date}/{host}.log"
DAY = 86_400_000_000_000


@pytest.fixture
def partition(partition: Partition) -> Partition:
    return replace(partition, template=TEMPLATE)


def order(partition: Partition, compress: str = "zstd", limits: Limits = Limits()) -> Order:  # noqa: B008 - a value
    return Order(partition.output, partition.state, compress, limits, Layout(TEMPLATE))


def paths(partition: Partition) -> list[str]:
    found = (path.relative_to(partition.output) for path in partition.output.rglob("*"))
    return sorted(str(path) for path in found if not path.parts[0].startswith("."))


@pytest.mark.parametrize("every", [timedelta(), timedelta(days=1)], ids=["never", "daily"])
def test_a_file_of_yesterday_stays_as_it_is_and_is_compressed_under_its_name(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, every: timedelta
) -> None:
    partition.lines("web01", b"one")
    partition = replace(partition, rotate_every=every)
    until = partition.receive().until
    (_, live) = paths(partition)
    retention = Retention(order(partition), time.time_ns)
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 2 * DAY)

    retention.tidy(lambda: False)
    assert live in paths(partition), "nobody has said that the partition is silent"
    turned = partition.rotate(until, ForcedRotation.DUE)
    retention.tidy(lambda: False)

    assert isinstance(turned, Done)
    assert turned.closed == (live,)
    assert paths(partition) == [live.partition("/")[0], f"{live}.zst"]
    packed = (partition.output / f"{live}.zst").read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == b"one\n"


def test_no_line_goes_to_a_day_before_that_of_the_last_committed_one(partition: Partition) -> None:
    partition.lines("web01", b"one")
    partition.move(1, last_time="2099-12-31T12:00:00.000Z")

    partition.receive()

    assert paths(partition) == ["2099-12-31", "2099-12-31/web01.log"]


def test_days_that_are_over_are_closed_segments_once_and_forgotten_when_they_are_removed(
    partition: Partition,
) -> None:
    for day in range(3, 6):
        last = partition.lines("web01", b"one")
        partition.move(last, last_time=f"2099-12-0{day}T12:00:00.000Z")
        partition.receive(last)
    known = partition.sql("SELECT path FROM segments ORDER BY path")

    Retention(order(partition, "none", Limits(number=1)), time.time_ns).tidy(lambda: False)

    assert known == [("2099-12-03/web01.log",), ("2099-12-04/web01.log",)]
    assert [path for path in paths(partition) if path.endswith(".log")] == [
        "2099-12-04/web01.log",
        "2099-12-05/web01.log",
    ]
    assert partition.sql("SELECT path FROM files ORDER BY path") == [
        ("2099-12-04/web01.log",),
        ("2099-12-05/web01.log",),
    ]
