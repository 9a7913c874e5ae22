"""Files are whole, of one writer, and never reached through a link, pipe or device."""

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from nats_logship.app.files import open_folder, replace_file, write_atomic, write_for_owner


def planted_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


PLANTED: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to(path.with_name("secret")),
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "socket": planted_socket,
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", PLANTED)
def test_only_a_regular_file_is_opened_and_nothing_blocks(
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


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("before", ["file", "link"])
def test_a_secret_is_neither_open_to_others_nor_written_through_a_link(
    tmp_path: Path, before: str
) -> None:
    theirs, secret = tmp_path / "theirs", tmp_path / "secret"
    theirs.write_text("theirs")
    if before == "link":
        secret.symlink_to(theirs)
    else:
        secret.write_text("open")
        secret.chmod(0o666)

    write_atomic(secret, b"whole", 0o600)

    assert (theirs.read_text(), secret.read_bytes()) == ("theirs", b"whole")
    assert secret.lstat().st_mode == 0o100600
    assert names(tmp_path) == ["secret", "theirs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's folder")
def test_root_gives_files_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)

    with open_folder(tmp_path) as folder:
        folder.make("new").close()
        write_for_owner(folder, "his", "x")
    write_atomic(tmp_path / "ours", "x")

    new, his, ours = ((tmp_path / name).stat() for name in ("new", "his", "ours"))
    assert [(one.st_uid, one.st_gid) for one in (new, his)] == [(12345, 12346)] * 2
    assert (new.st_mode & 0o777, ours.st_uid) == (0o750, 0)


def test_two_writers_of_one_file_never_mix_their_bytes(tmp_path: Path) -> None:
    path, seen = tmp_path / "positions", set()

    def race(letter: str) -> None:
        for size in range(1, 200):
            write_atomic(path, letter * size * 500 + ".")

    with ThreadPoolExecutor() as pool:
        racing = [pool.submit(race, letter) for letter in "ab"]
        while not all(one.done() for one in racing):
            if path.exists():
                text = path.read_text()
                seen.add((frozenset(text), len(text) % 500))

    assert [one.result() for one in racing] == [None, None]
    assert seen <= {(frozenset("a."), 1), (frozenset("b."), 1)}
    assert names(tmp_path) == ["positions"]


def test_the_next_writer_removes_temporary_files_of_killed_writers_only(tmp_path: Path) -> None:
    for name in ("[mark].more", "mark.1.tmp", "[mark].2.tmp", "[mark].3.tmp"):
        (tmp_path / name).touch()
    for name in ("mark.1.tmp", "[mark].2.tmp"):
        os.utime(tmp_path / name, (0, 0))

    write_atomic(tmp_path / "[mark]", "")

    assert names(tmp_path) == ["[mark]", "[mark].3.tmp", "[mark].more", "mark.1.tmp"]


def test_a_failed_writer_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "mark").write_text("old")
    (tmp_path / ".mark.new").symlink_to(tmp_path / "mark")
    with open_folder(tmp_path) as folder:
        with suppress(KeyError), replace_file(folder, "mark", ".mark.new", 0o600) as file:
            file.write(b"new")
            raise KeyError
        assert (names(tmp_path), (tmp_path / "mark").read_text()) == (["mark"], "old")

        (tmp_path / ".mark.new").symlink_to(tmp_path / "mark")
        with replace_file(folder, "mark", ".mark.new", 0o600) as file:
            file.write(b"new")
            assert (tmp_path / "mark").read_text() == "old"

    assert (names(tmp_path), (tmp_path / "mark").read_text()) == (["mark"], "new")
    assert (tmp_path / "mark").stat().st_mode & 0o777 == 0o600
