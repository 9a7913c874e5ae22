"""A task that turns live files though no line comes: all of them, or those whose period is over; killed at every point."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from receiver.consume.assignment import Done, ForcedRotation
from tests.receiver.partition import Partition
from tests.receiver.points import IN_TURN

pytestmark = pytest.mark.nats

HOSTS = ("web01", "db.example.net", "cache")
TURNED = {f"{host}.log.000001": host.encode() + b"\n" for host in HOSTS}


@pytest.fixture
def partition(partition: Partition) -> Partition:
    """Return a partition of which one line of every host was received."""
    for host in HOSTS:
        partition.lines(host, host.encode())
    partition.receive()
    return partition


def with_lines(partition: Partition) -> dict[str, bytes]:
    return {name: data for name, data in partition.files().items() if data}


def test_asked_for_every_file_that_has_lines_is_turned_once(partition: Partition) -> None:
    done = partition.rotate(4)
    again = partition.rotate(4)

    assert isinstance(done, Done)
    assert isinstance(again, Done)
    assert (done.until, again.closed) == (4, ())
    assert sorted(done.closed) == sorted(TURNED)
    assert with_lines(partition) == TURNED
    assert (partition.output / "web01.log").read_bytes() == b""


def test_by_the_clock_files_of_an_earlier_period_are_turned(partition: Partition) -> None:
    yesterday = time.time_ns() - 86_400_000_000_000
    partition.sql("UPDATE files SET last_line = ? WHERE host = 'cache'", yesterday)

    done = replace(partition, rotate_every=timedelta(days=1)).rotate(4, ForcedRotation.DUE)

    assert isinstance(done, Done)
    assert done.closed == ("cache.log.000001",)


@pytest.mark.parametrize("point", ["announced", "closed", "rotated", "files_synced", *IN_TURN])
def test_killed_at_any_point_it_is_done_by_the_next_task(partition: Partition, point: str) -> None:
    killed = partition.run_apart(4, fault=point, rotation=ForcedRotation.ALL)
    assert killed == -9

    partition.receive(4)

    assert with_lines(partition) == TURNED
    partition.lines("web01", b"next")
    partition.receive(4)
    assert partition.read("web01") == b"web01\nnext\n"
