"""A task that was stopped within a batch and resumes after a takeover damages nothing."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nats_logship.app.exits import ConfigurationError
from nats_logship.client import bucket
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Cause, Done, SessionLimits
from tests.receiver.partition import Partition, blocked

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
POINTS = ["fetched", "announced", "appended", "synced", "stored"]


@pytest.mark.parametrize("point", POINTS)
def test_a_stopped_task_is_superseded_on_its_own_machine(partition: Partition, point: str) -> None:
    first = partition.take_over("a:1")
    partition.lines("web01", b"1", b"2")

    with partition.stopped_at(point, first.next, first.epoch) as go_on:
        second = partition.take_over("b:2")
        partition.lines("web01", b"3")
        kept_out = partition.session(SessionLimits(lock=0.1), second.next, second.epoch)
        blocked(kept_out.outcome, Cause.LOCKED, "p0.lock")
        report = go_on()

    assert "Superseded" in report
    assert "b:2" in report
    assert isinstance(partition.run(second.next, second.epoch), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n3\n", 4)


@pytest.mark.parametrize("point", POINTS)
def test_a_stopped_task_is_superseded_from_another_machine(
    partition: Partition, tmp_path: Path, point: str
) -> None:
    there = partition.with_folder(tmp_path / "there")
    first = partition.take_over("a:1")
    partition.lines("web01", b"1", b"2")

    with partition.stopped_at(point, first.next, first.epoch) as go_on:
        second = there.take_over("b:2")
        assert isinstance(there.run(second.next, second.epoch), Done)
        report = go_on()

    assert "Superseded" in report
    before = partition.files()
    with pytest.raises(ConfigurationError, match=r"is 3 in epoch 4.*offsets adopt --partition 0"):
        partition.take_over("a:4")
    assert partition.files() == before
    assert (there.read("web01"), partition.offset().owner) == (b"1\n2\n", "b:2")


def test_a_late_commit_of_a_batch_that_is_undone_is_refused(partition: Partition) -> None:
    partition.lines("web01", b"1", b"2")
    assert partition.run_apart(fault="stored") == -9
    entry = partition.ask(lambda connection: bucket.read(connection, OFFSETS_BUCKET, "p0"))
    assert entry
    late = replace(Offset.decode(entry.value), next=3, lines=2, size=4)
    assert partition.run_apart(fault="undone") == -9
    assert partition.files() == {"web01.log": b""}

    with pytest.raises(bucket.Conflict):
        partition.ask(
            lambda c: bucket.write(c, OFFSETS_BUCKET, "p0", late.encode(), entry.revision)
        )

    assert isinstance(partition.run(), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n", 3)
