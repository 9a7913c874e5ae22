"""Folders and files are reached through no link, pipe or device that another user has put in their place."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.app.files import make_folder, open_folder, read_file

FOREIGN = (12345, 12346)
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's folder")


def planted_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


PLANTED: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to(path.with_name("secret")),
    "dangling link": lambda path: path.symlink_to(path.with_name("nowhere")),
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "socket": planted_socket,
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", PLANTED)
def test_only_a_regular_file_is_opened_and_nothing_waited_for(
    tmp_path: Path, kind: str, flags: int
) -> None:
    (tmp_path / "secret").write_text("theirs")
    PLANTED[kind](tmp_path / "file")

    with (
        open_folder(tmp_path) as folder,
        pytest.raises(OSError, match=r"link|regular|directory") as refused,
    ):
        folder.open("file", flags)

    assert refused.value.filename == str(tmp_path / "file")
    assert not (tmp_path / "nowhere").exists()


def test_our_own_links_lead_to_folders_and_files_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("ours")
    (tmp_path / "here").symlink_to("there")
    (tmp_path / "short").symlink_to(tmp_path / "here" / "file")

    assert read_file(tmp_path / "here" / "file") == b"ours"
    assert read_file(tmp_path / "short") == b"ours"
    with make_folder(tmp_path / "here" / ".." / "here" / "new" / "inner") as made:
        assert os.path.samestat(os.fstat(made.descriptor), (tmp_path / "there/new/inner").stat())


@ONLY_ROOT
def test_a_folder_that_root_makes_in_another_users_is_that_users(tmp_path: Path) -> None:
    os.chown(tmp_path, *FOREIGN)

    with open_folder(tmp_path) as folder:
        folder.make("new").close()

    found = (tmp_path / "new").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (*FOREIGN, 0o750)
