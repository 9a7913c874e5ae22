"""Gaps on disk: each is a row of the store and a line of the partition's report, whatever dies in between."""

import json
from pathlib import Path

import pytest

from receiver.consume.assignment import Done, SessionLimits
from receiver.storage.store import Store
from receiver.storage.tables import gap_report
from tests.receiver.partition import Partition, ours
from tests.receiver.points import IN_BATCH

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path, rotate_size=100)
    made.claim()
    return made


def with_gaps(partition: Partition, *numbers: int) -> int:
    """Publish lines of a file, each behind 10 bytes that never come; return the sequence behind the last one."""
    last = partition.publish(*(ours("web01", "a", 20 * n, b"line %04d\n" % n) for n in numbers))
    return last + 1


def told(partition: Partition) -> list[tuple[str, int, int]]:
    lines = (partition.output / gap_report(0)).read_text("ascii").splitlines()
    return [(one["host"], one["start"], one["end"]) for one in map(json.loads, lines)]


def counted(partition: Partition) -> dict[str, tuple[int, int]]:
    """Return by host how many gaps the store has, and of how many bytes in all."""
    query = "SELECT host, count(*), sum(until - start) FROM gaps GROUP BY host"
    with Store(partition.store) as store:
        return {
            str(host): (int(str(gaps)), int(str(size))) for host, gaps, size in store.rows(query)
        }


def test_a_gap_is_told_with_host_file_bytes_and_times(partition: Partition) -> None:
    with_gaps(partition, 0, 1)
    partition.receive()

    (about,) = map(json.loads, (partition.output / gap_report(0)).read_text("ascii").splitlines())
    assert about.pop("since") is not None
    assert about.pop("until") is not None
    assert about == {
        "kind": "gap",
        "host": "web01",
        "file": "/var/log/a",
        "file_id": "a",
        "start": 10,
        "end": 20,
        "sequence": 2,
        "partition": 0,
        "bytes": 10,
    }


@pytest.mark.parametrize("point", [point for point in IN_BATCH if point != "reported"])
def test_every_gap_is_told_once_and_counted_once_through_any_kill(
    partition: Partition, point: str
) -> None:
    with_gaps(partition, *range(3))
    begin = partition.receive().until
    until = with_gaps(partition, *range(3, 40))

    assert partition.run_apart(begin, fault=point, session=SessionLimits(60.0)).returncode == -9
    while partition.offset().next < until:
        assert isinstance(partition.run(partition.offset().next), Done)

    assert told(partition) == [("web01", 20 * n - 10, 20 * n) for n in range(1, 40)]
    assert counted(partition) == {"web01": (39, 390)}
