"""Secrets in files: for their owner alone, never over another file, and all of them or none."""

import os
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.granting.handing import Sheet, hand_over, take_back


def test_a_secret_is_for_its_owner_alone_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        hand_over([Sheet(tmp_path / "a", "s3cret\n")], force=False)
        hand_over([Sheet(tmp_path / "a", "new\n"), Sheet(tmp_path / "b", "s\n")], force=True)
    finally:
        os.umask(before)

    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600, 0o600]
    assert (tmp_path / "a").read_text() == "new\n"


def test_where_one_file_is_there_none_is_written(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    sheets = [Sheet(tmp_path / name, "s3cret") for name in "abc"]

    with pytest.raises(OperatorError, match="b is there already; --force replaces it"):
        hand_over(sheets, force=False)

    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_text() == "mine"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("theirs")
    (tmp_path / "a").symlink_to(tmp_path / "there")

    with pytest.raises(OperatorError, match="is there already"):
        hand_over([Sheet(tmp_path / "a", "s3cret")], force=False)
    hand_over([Sheet(tmp_path / "a", "s3cret")], force=True)

    assert (tmp_path / "there").read_text() == "theirs"


def test_a_file_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"cannot write .*No such file or directory"):
        hand_over([Sheet(tmp_path / "gone" / "a", "s3cret")], force=False)


def test_what_is_taken_back_is_gone(tmp_path: Path) -> None:
    sheets = [Sheet(tmp_path / "a", "s3cret"), Sheet(tmp_path / "never", "s3cret")]
    hand_over(sheets[:1], force=False)

    take_back(sheets)

    assert list(tmp_path.iterdir()) == []
    assert "s3cret" not in repr(sheets)
