"""Folders below the output folder: never through a link, on disk after a sync, made again where others removed them."""

import os
from pathlib import Path

import pytest

from receiver.permissions import Permissions
from receiver.storage import disk, folders
from receiver.storage.folders import Folders, make_folder


def test_the_folders_above_are_made_too_and_have_the_same_mode(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        make_folder(tmp_path / "a/b/c", Permissions(folder=0o755))
    finally:
        os.umask(before)

    for name in ("a", "a/b", "a/b/c"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o755


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


def test_thousands_of_changed_folders_take_few_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda opened: (syncs.append(opened), fsync(opened)))
    opened = Folders(tmp_path)
    for number in range(1000):
        opened.make(f"host{number}")
        opened.note_change(f"host{number}")
    (tmp_path / "host7").rmdir()  # by other hands

    opened.sync()

    opened.close()
    assert len(syncs) < 500 or not disk.sync_all(os.open(tmp_path, os.O_RDONLY))


def test_an_error_names_the_whole_path(tmp_path: Path) -> None:
    (tmp_path / "web01").write_bytes(b"a file\n")
    opened = Folders(tmp_path)

    with pytest.raises(OSError, match="move it away") as of_folder:
        opened.make("web01/var")
    (tmp_path / "a.log").mkdir()
    with pytest.raises(OSError, match="no regular file") as of_file:
        opened.find("a.log")
    opened.close()

    assert of_folder.value.filename == str(tmp_path / "web01")
    assert of_file.value.filename == str(tmp_path / "a.log")


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
