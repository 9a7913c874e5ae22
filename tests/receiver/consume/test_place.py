"""A folder is known by its mark, not by its name, and its locks are felt by others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.consume.assignment import Place
from receiver.consume.place import Elsewhere, held, is_held, local_place_of, look, place_of

ASK = """
import sys
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


def test_a_folder_of_this_machine_is_known_without_its_mark_and_by_it_when_mounted_again(
    tmp_path: Path,
) -> None:
    folder, beneath = tmp_path / "out", tmp_path / "beneath"
    folder.mkdir()
    place = local_place_of(folder)
    (folder / ".place").rename(tmp_path / "mark")

    look(place)
    folder.rename(beneath)
    with pytest.raises(Elsewhere, match="is its disk mounted"):
        look(place)
    folder.mkdir()
    with pytest.raises(Elsewhere, match="is its disk mounted"):
        look(place)
    (tmp_path / "mark").rename(folder / ".place")
    look(place)


def test_a_place_that_is_no_folder_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")

    with pytest.raises(Elsewhere):
        look(Place(tmp_path / "out", "x"))


def test_a_lock_that_the_driver_holds_is_felt_by_another_process(tmp_path: Path) -> None:
    place = place_of(tmp_path)

    with held((place,)), held((place,)):
        assert asked_elsewhere(tmp_path) == "True"
    assert asked_elsewhere(tmp_path) == "False"
    assert not is_held(place)


def test_a_mark_with_a_changed_bit_is_another_place_and_no_traceback(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    mark = bytearray((tmp_path / ".place").read_bytes())
    mark[3] ^= 0x80
    (tmp_path / ".place").write_bytes(mark)

    assert place_of(tmp_path) != place
    with pytest.raises(Elsewhere):
        look(place)


@pytest.mark.parametrize("call", ["fsync", "unlink"])  # before it has its name, and after
def test_what_somebody_died_over_while_marking_is_gone_once_there_is_a_mark(
    tmp_path: Path, call: str
) -> None:
    dies = (
        "import os, signal, sys, pathlib\n"
        "from receiver.consume.place import place_of\n"
        f"os.{call} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "place_of(pathlib.Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", dies, str(tmp_path)], check=False)
    left = list(tmp_path.iterdir())

    place_of(tmp_path)

    assert left != []
    assert [path.name for path in tmp_path.iterdir()] == [".place"]
