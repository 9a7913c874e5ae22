"""The scratch folder: there while it is used, gone afterwards, whoever left it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from receiver.spark.jvm import scratch_folder

HOLD = """
import time
from receiver.spark.jvm import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # pytest's own are too long for sockets
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_a_disk_that_refuses_a_scratch_folder_is_told_in_a_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "file"))

    with (
        pytest.raises(OperatorError, match=r"scratch folder in .*: Not a directory"),
        scratch_folder(),
    ):
        pass


def test_starts_at_the_same_time_do_not_take_each_others_folders_away(place: Path) -> None:
    def start_often(_: int) -> int:
        count = 0
        for _ in range(100):
            with scratch_folder() as folder:
                (folder / "blocks" / "deep").mkdir(parents=True)
                count += (folder / "blocks").exists()
        return count

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(start_often, range(4)))

    assert counts == [100] * 4
    assert list(place.iterdir()) == []


def test_a_folder_in_use_is_left_alone_and_one_of_a_killed_start_is_removed(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with scratch_folder():
            while_it_lives = theirs.exists()
        other.send_signal(signal.SIGKILL)
        other.wait()
        left_by_the_kill = theirs.exists()

        with scratch_folder():
            afterwards = theirs.exists()

    assert (while_it_lives, left_by_the_kill, afterwards) == (True, True, False)


def test_a_temporary_folder_too_long_for_unix_sockets_gives_way_to_tmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with scratch_folder() as folder:
        assert folder.parent == Path("/tmp")


def test_what_a_link_names_or_another_user_owns_is_left_alone(place: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    (place / "logreceiver-link").symlink_to(tmp_path)
    theirs = place / "logreceiver-theirs"
    theirs.mkdir()
    if os.geteuid() == 0:  # only root makes another user's folder
        os.chown(theirs, 12345, 12346)

    with scratch_folder():
        pass

    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert theirs.exists() == (os.geteuid() == 0)
