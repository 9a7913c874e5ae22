"""A task in doubt about entry, stream or journal: what comes late counts no more, and nothing is written to the wrong stream."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM
from receiver.consume.assignment import Cause, Done
from receiver.consume.claim import Claim
from tests.receiver.partition import Partition, blocked

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def make_stream_anew(partition: Partition) -> None:
    async def anew(connection: Connection) -> None:
        config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        await connection.api(f"STREAM.DELETE.{STREAM}")
        await connection.api(f"STREAM.CREATE.{STREAM}", config)

    partition.ask(anew)


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
    late = Offset.decode(entry.value).advanced(3, 2, 4, "", "")
    assert partition.run_apart(fault="undone").returncode == -9
    assert partition.files() == {"web01.log": b""}

    with pytest.raises(bucket.Conflict):
        partition.ask(
            lambda c: bucket.write(c, OFFSETS_BUCKET, "p0", late.encode(), entry.revision)
        )

    assert isinstance(partition.run(), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n", 3)


@pytest.mark.parametrize("behind", [0, 5], ids=["rewound", "refilled past the offset"])
def test_a_stream_made_anew_is_noticed_by_the_task_before_it_writes(
    partition: Partition, behind: int
) -> None:
    partition.lines("web01", b"1", b"2")
    done = partition.receive()
    make_stream_anew(partition)
    partition.lines("web01", *(b"anew" for _ in range(done.until + behind)))

    blocked(
        partition.run(done.until),
        Cause.STATE,
        "made anew",
        "offsets set --partition 0 --to earliest",
    )

    assert partition.read("web01") == b"1\n2\n"
    assert partition.offset().next == done.until


def test_a_store_that_is_removed_in_mid_run_is_missed(partition: Partition) -> None:
    claimed = partition.ask(lambda c: Claim(c, 0, "a:1", "LOGS").claim(NOW))
    assert claimed
    partition.lines("web01", b"1")
    done = partition.run(1, claimed.epoch)
    assert isinstance(done, Done)
    partition.store.unlink()

    blocked(partition.run(done.until, claimed.epoch), Cause.STATE, "p0.db is gone", "offsets adopt")
    assert partition.files() == {"web01.log": b"1\n"}
