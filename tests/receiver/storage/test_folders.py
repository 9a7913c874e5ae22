"""Folders below the output folder: never through a link, on disk after a sync, made again where others removed them."""

from pathlib import Path

from receiver.storage import folders


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
