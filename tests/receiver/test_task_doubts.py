"""A task in doubt about entry, stream or journal: what comes late counts no more, and nothing is written to the wrong stream."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Done
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def test_a_commit_that_arrives_when_its_lines_are_being_undone_counts_no_more(
    partition: Partition,
) -> None:
    partition.lines("web01", b"1", b"2")
    assert partition.run_apart(fault="stored").returncode == -9

    async def read(connection: Connection) -> bucket.Entry:
        entry = await bucket.read(connection, OFFSETS_BUCKET, "p0")
        assert entry
        return entry

    entry = partition.ask(read)
    late = replace(Offset.decode(entry.value), next=3, lines=2, size=4)
    assert partition.run_apart(fault="undone").returncode == -9
    assert partition.files() == {"web01.log": b""}

    with pytest.raises(bucket.Conflict):
        partition.ask(
            lambda c: bucket.write(c, OFFSETS_BUCKET, "p0", late.encode(), entry.revision)
        )

    assert isinstance(partition.run(), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n", 3)
