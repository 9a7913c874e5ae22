"""Folders below the output folder: never through a link, on disk after a sync, made again where others removed them."""

from pathlib import Path

import pytest

from receiver.storage import folders
from receiver.storage.folders import make_folder


def test_a_name_that_could_not_be_brought_to_disk_is_brought_there_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path)
    synced = []

    def failing(folder: Path) -> None:
        synced.append(folder)
        if len(synced) == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(folders, "sync_folder", failing)
    with pytest.raises(OSError, match="Input/output"):
        make_folder(tmp_path / "new")

    for _ in range(2):
        make_folder(tmp_path / "new")

    assert synced == [tmp_path, tmp_path], "once more, and then never again"


def test_no_walk_leads_through_a_link_or_deeper_than_any_of_ours(tmp_path: Path) -> None:
    deep = tmp_path / "out" / "/".join("d" * 100)
    deep.mkdir(parents=True)
    (deep / "a.log").touch()
    (tmp_path / "out" / "b.log").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.log").touch()
    (tmp_path / "out" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "file").symlink_to(tmp_path / "elsewhere" / "c.log")

    assert list(folders.walk(tmp_path / "out")) == ["b.log"]
