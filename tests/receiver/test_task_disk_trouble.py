"""A task on a disk that fails at any call: afterwards all lines are in the files once."""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume import task
from receiver.consume.assignment import Blocked, Cause, Ending, SessionLimits
from receiver.consume.marked_folders import WrongFolder, check_folder, hold_locks, mark_folder
from receiver.storage.disk import can_sync_file_system
from receiver.storage.folders import Folders
from tests.receiver.faulty_disk import Died, FaultyDisk, Trouble, mounted
from tests.receiver.partition import Partition, blocked, ours

pytestmark = pytest.mark.nats

_LONG = SessionLimits(60.0)
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
def partition(partition: Partition, tmp_path: Path) -> Partition:
    return replace(partition, rotate_size=30).with_folder(tmp_path / "base")


def copied(partition: Partition, folder: Path) -> Partition:
    shutil.copytree(partition.folder, folder)
    return replace(partition, folder=folder)


def everything(partition: Partition) -> dict[str, bytes]:
    return {
        str(path.relative_to(partition.output)): path.read_bytes()
        for path in sorted(partition.output.rglob("*"))
        if path.is_file()
    }


def finish(partition: Partition, begin: int) -> None:
    """Receive the rest."""
    for _ in range(3):
        report = partition.session(_LONG, begin)
        if report.outcome is Ending.SILENCE:
            return
        begin = report.done.until
    pytest.fail(f"it never comes to its end: {report.outcome}")


def unsafe(disk: FaultyDisk) -> list[Path]:
    """Return the files with committed bytes that a power cut would lose."""
    return [
        path
        for inode, (_, _, path) in disk.unsafe.items()
        if path.exists() and path.stat().st_ino == inode
    ]


def is_trusted(folder: Path) -> bool:
    return can_sync_file_system(folder.stat().st_dev)


_TROUBLES = [
    *(pytest.param(trouble, "{host}.log", id=trouble.name) for trouble in Trouble),
    pytest.param(Trouble.DEATH, "{host}/{file}", id="DEATH in folders"),
]


@pytest.mark.timeout(720)
@pytest.mark.parametrize(("trouble", "template"), _TROUBLES)
def test_whichever_call_fails_every_line_is_in_the_files_once_in_the_end(
    partition: Partition, tmp_path: Path, trouble: Trouble, template: str, cuts: list[str]
) -> None:
    partition = replace(partition, template=template)
    partition.publish(*_FIRST)
    begin = partition.receive().until
    partition.publish(*_SECOND)
    twin = copied(partition, tmp_path / "reference")
    finish(twin, begin)
    expected = everything(twin)
    assert len([name for name in expected if name.endswith(".000001")]) == 1
    assert len([name for name in expected if not name.startswith(".")]) == 4

    struck = 0
    while True:
        own = copied(partition, tmp_path / f"own{struck}")
        own.move(begin)
        disk = FaultyDisk(trouble, struck + 1)
        with disk.plugged_in():
            try:
                outcome = own.session(_LONG, begin).outcome
            except Died:
                outcome = None
        if not disk.has_struck:
            break
        struck += 1
        if isinstance(outcome, Blocked):
            blocked(outcome, Cause.DISK)
        with FaultyDisk(trouble).plugged_in():
            finish(own, own.offset().next)

        assert (everything(own), cuts) == (expected, []), f"call {struck}"

    assert struck > 20


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize(
    "killed",
    [(30, "closed", "web01.log.000001"), (0, "stored", "web01.log")],
)
def test_a_file_whose_status_fails_for_a_moment_at_a_start_keeps_all_its_lines(
    partition: Partition,
    monkeypatch: pytest.MonkeyPatch,
    cuts: list[str],
    number: int,
    killed: tuple[int, str, str],
) -> None:
    rotate_size, fault, name = killed
    partition = replace(partition, rotate_size=rotate_size)
    partition.lines("web01", b"a line that fills the file up\n")
    begin = partition.receive().until
    partition.lines("web01", b"the next one\n")
    assert partition.run_apart(begin, fault=fault) == -9
    before = (partition.output / "web01.log").read_bytes()
    find, errors = Folders.find, [OSError(number, os.strerror(number))]

    def find_later(folders: Folders, path: str) -> os.stat_result | None:
        while path == "web01.log" and errors:
            raise errors.pop()
        return find(folders, path)

    monkeypatch.setattr(Folders, "find", find_later)
    blocked(partition.run(begin), Cause.DISK)
    partition.receive(begin)

    assert partition.files()[name] == before
    assert partition.read("web01") == b"a line that fills the file up\nthe next one\n"
    assert (cuts, errors) == ([], [])


@pytest.mark.timeout(720)
@pytest.mark.parametrize("hosts", [1, 70], ids=["a sync a file", "one for all"])
def test_bytes_that_a_failed_sync_may_have_lost_are_written_again(
    partition: Partition, tmp_path: Path, hosts: int
) -> None:
    partition.publish(*_FIRST)
    begin = partition.receive().until
    partition.publish(*_SECOND, *(ours(f"h{n}", "a", 0, b"a line\n") for n in range(hosts)))

    def fail_at(call: int) -> FaultyDisk:
        own = copied(partition, tmp_path / f"own{call}")
        own.move(begin)
        disk = FaultyDisk(Trouble.ONCE, call)
        with disk.plugged_in():
            disk.synced = {
                path.stat().st_ino: path.stat().st_size for path in own.folder.rglob("*")
            }
            finish(own, own.session(_LONG, begin).done.until)
        return disk

    count = fail_at(sys.maxsize).calls
    # of many files the calls at the end, which sync them, and some of those before
    calls = range(1, count + 1) if hosts == 1 else [*range(1, count, 9), *range(count - 25, count)]
    failed = [fail_at(call) for call in sorted({*calls})]

    assert [disk.calls for disk in failed if unsafe(disk)] == []
    assert sum(disk.lost for disk in failed) >= 5
    assert any(disk.whole_syncs for disk in failed) is (hosts > 8 and is_trusted(tmp_path))


def test_nothing_is_committed_whose_bytes_and_names_were_not_synced(partition: Partition) -> None:
    begin = 1
    for messages in (_FIRST, _SECOND):
        partition.publish(*messages)
        disk = FaultyDisk(Trouble.ONCE)
        with disk.plugged_in():
            begin = partition.receive(begin).until

        files = [path for path in partition.output.rglob("*") if path.is_file()]
        written = [path for path in files if path.stat().st_ino in disk.written]
        assert len(written) > 2
        for path in written:
            found = path.stat()
            assert disk.synced.get(found.st_ino, 0) == found.st_size, path
            assert path.parent.stat().st_ino in disk.synced


def test_a_file_on_a_file_system_below_the_output_folder_is_synced_itself(
    partition: Partition,
) -> None:
    partition = replace(partition, template="{host}/{file}")
    partition.publish(*(ours(f"h{n}", "a", 0, b"a line\n") for n in range(20)))
    with mounted(partition.output / "h7") as below:
        disk = FaultyDisk(Trouble.ONCE)
        with disk.plugged_in():
            partition.receive()

        files = [path for path in partition.output.rglob("*") if path.is_file()]
        assert len(files) == 20
        assert disk.whole_syncs == is_trusted(partition.output)
        assert {disk.synced[path.stat().st_ino] for path in files} == {7}
        assert below.stat().st_ino in disk.synced


def fill(folder: Path) -> None:
    space = os.statvfs(folder)
    (folder / "filler").write_bytes(bytes(space.f_bavail * space.f_frsize))


@pytest.mark.parametrize(
    ("options", "reason"), [("rw", "No space left"), ("ro", "")], ids=["full", "read-only"]
)
def test_a_full_or_read_only_state_folder_blocks_until_it_can_be_written_to(
    partition: Partition, options: str, reason: str
) -> None:
    with mounted(partition.state, "size=512k") as state:
        partition.publish(*_FIRST)
        begin = partition.receive().until
        fill(state)
        subprocess.run(["mount", "-o", f"remount,{options}", str(state)], check=True)
        partition.publish(*_SECOND)
        before = everything(partition)

        outcomes = [partition.run(begin), partition.run(begin)]
        left = everything(partition)
        subprocess.run(["mount", "-o", "remount,rw", str(state)], check=True)
        (state / "filler").unlink()
        partition.receive(begin)

        for outcome in outcomes:
            blocked(outcome, Cause.DISK, reason, str(state))
        assert before.items() <= left.items()
        lines = b"first of web01\nsecond of web01, which rotates\nthird of web01\n"
        assert partition.read("web01") == lines
        assert partition.read("db") == b"first of db\nbehind a gap\n"


@pytest.mark.parametrize("is_in_session", [False, True], ids=["before one", "in a session"])
def test_nothing_is_written_below_a_mount_point_without_its_disk(
    partition: Partition, tmp_path: Path, *, is_in_session: bool
) -> None:
    partition.lines("web01", b"one")
    away = tmp_path / "unmounted"
    for folder in (partition.output, partition.state):
        folder.mkdir(parents=True)
    folders = tuple(map(mark_folder, (partition.output, partition.state)))
    destination = replace(partition.destination, folders=folders)
    with hold_locks(folders):
        with partition.long_session(destination=destination) as report:
            partition.wait_until_committed(2)
            if not is_in_session:
                partition.ask(lambda connection: connection.publish("leave.1"))
                assert report.result(30).done.until == 2
            partition.output.rename(away)
            partition.output.mkdir()
            partition.lines("web01", b"two")
            ended = report.result(30) if is_in_session else None
        ended = ended or task.run_session(partition.assignment(2), destination)

        blocked(ended.outcome, Cause.REACH, "is its disk mounted?", str(partition.output))
        assert list(partition.output.iterdir()) == []
        partition.output.rmdir()
        away.rename(partition.output)
        assert task.run_session(partition.assignment(2), destination).done.lines == 1
    assert partition.files() == {"web01.log": b"one\ntwo\n"}


def test_nothing_is_written_if_the_drivers_lock_is_not_seen(tmp_path: Path) -> None:
    with pytest.raises(WrongFolder, match=r"locks on .* do not reach"):
        check_folder(mark_folder(tmp_path))
