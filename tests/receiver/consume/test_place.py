"""A folder is known by its mark, not by its name, and its locks are felt by others."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.consume.place import Elsewhere, held, is_held, look, place_of

ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from receiver.consume.assignment import Place
from receiver.consume.place import is_held, place_of
print(is_held(place_of(Path(sys.argv[1]))))
"""


def asked_elsewhere(folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_mark_is_made_once_and_stays(tmp_path: Path) -> None:
    first = place_of(tmp_path)

    look(first)
    assert place_of(tmp_path) == first
    assert len(first.mark) == 32
    assert [path.name for path in tmp_path.iterdir()] == [".place"]


def test_a_folder_of_the_same_name_is_not_the_same_place(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    place = place_of(folder)
    shutil.rmtree(folder)

    with pytest.raises(Elsewhere, match=r"out on .* is not the folder"):
        look(place)
    folder.mkdir()
    with pytest.raises(Elsewhere):
        look(place)
    place_of(folder)
    with pytest.raises(Elsewhere):
        look(place)


def test_a_lock_that_the_driver_holds_is_felt_by_another_process(tmp_path: Path) -> None:
    place = place_of(tmp_path)

    with held((place,)), held((place,)):
        assert asked_elsewhere(tmp_path) == "True"
    assert asked_elsewhere(tmp_path) == "False"
    assert not is_held(place)


def test_a_mark_that_somebody_died_over_is_made_again(tmp_path: Path) -> None:
    dies = (
        "import os, signal, sys, pathlib\n"
        "from receiver.consume.place import place_of\n"
        "os.ftruncate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "place_of(pathlib.Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", dies, str(tmp_path)], check=False)
    os.truncate(tmp_path / ".place", 10)

    place = place_of(tmp_path)

    look(place)
    assert place == place_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".place"]
