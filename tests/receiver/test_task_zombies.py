"""A task that stood still in mid-batch and goes on when others have its partition: it damages nothing."""

import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.wire.offset import Offset
from receiver.consume.assignment import Cause, Done
from receiver.consume.claim import Claim
from receiver.storage.site import Site
from tests.receiver.partition import Partition, blocked

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
POINTS = ["fetched", "announced", "appended", "synced", "stored"]


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path / "here")


def claim(partition: Partition, owner: str) -> Offset:
    async def claimed(connection: Connection) -> Offset | None:
        site = Site(partition.output, partition.state, partition.number)
        return await Claim(connection, partition.number, owner, "LOGS", site).claim(NOW)

    offset = partition.ask(claimed)
    assert offset
    return offset


def goes_on(zombie: "subprocess.Popen[str]") -> str:
    """Let it go on; return its report."""
    zombie.send_signal(signal.SIGCONT)
    return zombie.communicate(timeout=60)[0]


@pytest.mark.parametrize("point", POINTS)
def test_beside_its_successor_on_one_machine(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr("receiver.consume.task._LOCK_PATIENCE", 0.1)
    first = claim(partition, "a:1")
    partition.lines("web01", b"1", b"2")

    with partition.stopped_at(point, first.next, first.epoch) as zombie:
        second = claim(partition, "b:2")
        partition.lines("web01", b"3")
        blocked(partition.run(second.next, second.epoch), Cause.LOCKED, "p0.lock")
        report = goes_on(zombie)

    assert "Superseded" in report
    assert "b:2" in report
    assert isinstance(partition.run(second.next, second.epoch), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n3\n", 4)


@pytest.mark.parametrize("point", POINTS)
def test_of_another_machine_which_has_other_files_and_is_refused_later(
    partition: Partition, tmp_path: Path, point: str
) -> None:
    there = partition.with_folder(tmp_path / "there")
    first = claim(partition, "a:1")
    partition.lines("web01", b"1", b"2")

    with partition.stopped_at(point, first.next, first.epoch) as zombie:
        second = claim(there, "b:2")
        assert isinstance(there.run(second.next, second.epoch), Done)
        report = goes_on(zombie)

    assert "Superseded" in report
    before = partition.files()
    with pytest.raises(ConfigurationError, match=r"is 3 in epoch 3.*offsets adopt --partition 0"):
        claim(partition, "a:3")
    assert partition.files() == before
    assert (there.read("web01"), partition.offset().owner) == (b"1\n2\n", "b:2")
