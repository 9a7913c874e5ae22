"""A task on a disk that fails at any single call: when the trouble is over, all is as if it had never been."""

import shutil
from pathlib import Path

import pytest

from receiver.outcome import Cause, Done
from tests.receiver.faulty_disk import Died, FaultyDisk, Trouble
from tests.receiver.partition import Partition, blocked, ours

pytestmark = pytest.mark.nats

_FIRST = [
    ours("web01", "a", 0, b"first of web01\n"),
    ours("db", "b", 0, b"first of db\n"),
    ("logs.p0.web01", b"not zstd", {"Content-Encoding": "zstd"}),
]
_SECOND = [
    ours("web01", "a", 15, b"second of web01, which rotates\n"),
    ours("web01", "a", 46, b"third of web01\n"),
    ours("new", "c", 0, b"first of new\n"),
    ("logs.p0.db", b"x", {"Content-Encoding": "br"}),
    ("logs.p0.a/b", b"evil\n", None),
    ours("db", "b", 20, b"behind a gap\n"),
]


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path, rotate_size=30).with_folder(tmp_path / "base")


def everything(partition: Partition) -> dict[str, bytes]:
    return {
        str(path.relative_to(partition.output)): path.read_bytes()
        for path in sorted(partition.output.rglob("*"))
        if path.is_file() and path.name != ".p0"  # a name in the making, for the next time
    }


def finish(partition: Partition, begin: int) -> None:
    """Receive the second batch, and look at the partition once more."""
    done = partition.run(begin)
    assert isinstance(done, Done), done
    partition.move(done.until)
    assert isinstance(partition.run(done.until), Done)


def unsafe(disk: FaultyDisk) -> list[str]:
    """Return the files of which a power cut would take bytes that are believed."""
    return [
        path
        for inode, (_, _, path) in disk.unsafe.items()
        if Path(path).exists() and Path(path).stat().st_ino == inode
    ]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("trouble", list(Trouble), ids=[trouble.name for trouble in Trouble])
def test_whichever_call_fails_everything_is_there_once_when_the_trouble_is_over(
    partition: Partition, tmp_path: Path, trouble: Trouble
) -> None:
    partition.claim()
    partition.publish(*_FIRST)
    begin = partition.receive().until
    partition.publish(*_SECOND)
    twin = partition.with_folder(tmp_path / "reference")
    shutil.copytree(partition.folder, twin.folder, dirs_exist_ok=True)
    finish(twin, begin)
    expected = everything(twin)
    assert {"db.log", "new.log", "web01.log", "web01.log.000002", ".gaps.jsonl"} < expected.keys()

    struck = 0
    while True:
        own = partition.with_folder(tmp_path / f"own{struck}")
        shutil.copytree(partition.folder, own.folder, dirs_exist_ok=True)
        own.move(begin)
        disk = FaultyDisk(trouble, struck + 1)
        with disk.plugged_in():
            try:
                outcome = own.run(begin)
            except Died:
                outcome = None
        if not disk.has_struck:
            break
        struck += 1
        if isinstance(outcome, Done):
            own.move(outcome.until)
            assert isinstance(own.run(outcome.until), Done)
        else:
            if outcome is not None:
                blocked(outcome, Cause.DISK)
            with FaultyDisk(trouble, 10**9).plugged_in():
                finish(own, begin)

        assert everything(own) == expected, f"call {struck}"

    assert struck > 20


@pytest.mark.timeout(240)
def test_what_a_failed_fsync_may_have_lost_is_cut_off_and_written_again(
    partition: Partition, tmp_path: Path
) -> None:
    partition.claim()
    partition.publish(*_FIRST)
    begin = partition.receive().until
    partition.publish(*_SECOND)

    failed = 0
    for call in range(1, 200):
        own = partition.with_folder(tmp_path / f"own{call}")
        shutil.copytree(partition.folder, own.folder, dirs_exist_ok=True)
        own.move(begin)
        disk = FaultyDisk(Trouble.ONCE, call)
        with disk.plugged_in():
            disk.synced = {
                path.stat().st_ino: path.stat().st_size for path in own.folder.rglob("*")
            }
            first = own.run(begin)
            failed += disk.lost
            if not isinstance(first, Done):
                finish(own, begin)
        if not disk.has_struck:
            break
        assert unsafe(disk) == [], f"call {call}"

    assert failed >= 5
