"""A folder is known by its mark, not by its name, and its locks are felt by others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.consume.marked_folders import Elsewhere, held, is_held, look, marked_folder

ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from receiver.consume.assignment import MarkedFolder
from receiver.consume.marked_folders import is_held, marked_folder
print(is_held(marked_folder(Path(sys.argv[1]))))
"""


def asked_elsewhere(folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_mark_is_made_once_and_stays(tmp_path: Path) -> None:
    first = marked_folder(tmp_path)

    look(first)
    assert marked_folder(tmp_path) == first
    assert len(first.mark) == 32
    assert [path.name for path in tmp_path.iterdir()] == [".folder-id"]


def test_a_folder_of_the_same_name_is_not_the_same_place(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    one = marked_folder(folder)
    shutil.rmtree(folder)

    with pytest.raises(Elsewhere, match=r"out on .* is not the folder"):
        look(one)
    folder.mkdir()
    with pytest.raises(Elsewhere):
        look(one)
    marked_folder(folder)
    with pytest.raises(Elsewhere):
        look(one)


def test_a_lock_that_the_driver_holds_is_felt_by_another_process(tmp_path: Path) -> None:
    one = marked_folder(tmp_path)

    with held((one,)), held((one,)):
        assert asked_elsewhere(tmp_path) == "True"
    assert asked_elsewhere(tmp_path) == "False"
    assert not is_held(one)
