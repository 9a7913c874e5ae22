"""The scratch folder: there while it is used, gone afterwards, whoever left it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.exits import OperatorError
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
