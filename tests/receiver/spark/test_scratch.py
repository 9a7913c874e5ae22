"""The scratch folder: there while it is used, gone afterwards, whoever left it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from receiver.spark.scratch import scratch_folder

HOLD = """
import pathlib, sys, time
from receiver.spark.scratch import scratch_folder
with scratch_folder(pathlib.Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # pytest's own are too long for sockets
        yield Path(folder)


def test_it_is_gone_with_all_that_it_held(short: Path) -> None:
    with scratch_folder(short / "state") as folder:
        (folder / "blocks" / "deep").mkdir(parents=True)

    assert list((short / "state").iterdir()) == []


def test_a_disk_that_refuses_a_scratch_folder_is_told_in_a_line(short: Path) -> None:
    (short / "file").touch()

    with (
        pytest.raises(OperatorError, match=r"scratch folder in .*: Not a directory"),
        scratch_folder(short / "file" / "state"),
    ):
        pass


def test_a_disk_that_refuses_the_lock_of_a_scratch_folder_is_told_in_a_line_and_nothing_stays(
    short: Path,
) -> None:
    options = ["-o", "size=64k,nr_inodes=2"]  # its own, and the folder's
    mounted = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", short], check=False)
    if mounted.returncode:
        pytest.skip("only the superuser may mount")
    try:
        with pytest.raises(OperatorError, match="No space left"), scratch_folder(short):
            pass
        left = list(short.iterdir())
    finally:
        subprocess.run(["umount", short], check=True)

    assert left == []


def test_what_a_start_left_that_was_killed_before_it_had_a_lock_is_removed(short: Path) -> None:
    dies = (
        "import fcntl, os, pathlib, signal, sys, tempfile\n"
        "from receiver.spark.scratch import scratch_folder\n"
        "made = tempfile.mkdtemp\n"
        "def die(**words): made(**words); os.kill(os.getpid(), signal.SIGKILL)\n"
        "tempfile.mkdtemp = die\n"
        "with scratch_folder(pathlib.Path(sys.argv[1])): pass\n"
    )
    subprocess.run([sys.executable, "-c", dies, str(short)], check=False)
    left = list(short.iterdir())
    (short / "logreceiver-of-mine").mkdir()
    (short / "logreceiver-of-mine" / "notes").touch()

    with scratch_folder(short):
        pass

    assert len(left) == 1
    assert [path.name for path in short.iterdir()] == ["logreceiver-of-mine"]


def test_starts_at_the_same_time_do_not_take_each_others_folders_away(short: Path) -> None:
    def start_often(_: int) -> int:
        count = 0
        for _ in range(100):
            with scratch_folder(short) as folder:
                (folder / "block").touch()
                count += (folder / "block").exists()
        return count

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(start_often, range(4)))

    assert counts == [100] * 4
    assert list(short.iterdir()) == []


def test_a_folder_in_use_is_left_alone_and_one_of_a_killed_start_is_removed(
    short: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(short)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with scratch_folder(short):
            while_it_lives = theirs.exists()
        other.kill()
        other.wait()
        left_by_the_kill = theirs.exists()

        with scratch_folder(short):
            afterwards = theirs.exists()

    assert (while_it_lives, left_by_the_kill, afterwards) == (True, True, False)


def test_a_parent_too_long_for_unix_sockets_gives_way_to_the_temporary_folder(
    tmp_path: Path,
) -> None:
    long = tmp_path / ("x" * 80)

    with scratch_folder(long) as folder:
        assert len(str(folder)) <= 64
        assert not long.exists()


def test_what_a_link_names_is_no_scratch_folder(short: Path, tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "notes").touch()
    (short / "logreceiver-link").symlink_to(tmp_path)

    with scratch_folder(short):
        pass

    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "notes"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's folder")
def test_another_users_scratch_folder_is_left_to_him(short: Path) -> None:
    theirs = short / "logreceiver-theirs"
    theirs.mkdir()
    (theirs / ".lock").touch()
    os.chown(theirs, 12345, 12346)

    with scratch_folder(short):
        pass

    assert (theirs / ".lock").exists()
