"""A folder is known by its mark, not by its name, and its locks are felt by others."""

import shutil
from pathlib import Path

import pytest

from receiver.consume.marked_folders import Elsewhere, held, look, marked_folder


def test_a_folder_is_known_by_a_mark_that_is_made_once_and_not_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    one = marked_folder(folder)
    with held((one,)), held((one,)):
        look(one)
    assert marked_folder(folder) == one
    shutil.rmtree(folder)

    with pytest.raises(Elsewhere, match=r"out on .* is not the folder"):
        look(one)
    folder.mkdir()
    marked_folder(folder)
    with pytest.raises(Elsewhere):
        look(one)


def test_where_the_drivers_lock_is_not_felt_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(Elsewhere, match=r"locks on .* do not reach"):
        look(marked_folder(tmp_path))
