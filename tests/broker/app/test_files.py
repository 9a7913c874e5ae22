"""Files are whole, one writer's, and reached through no link, pipe or device that another user has put in their place."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.app.files import (
    open_folder,
    replacing,
    write_atomic,
    write_for_owner,
)

FOREIGN = (12345, 12346)
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's folder")


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


@ONLY_ROOT
def test_a_folder_that_root_makes_in_another_users_is_that_users(tmp_path: Path) -> None:
    os.chown(tmp_path, *FOREIGN)

    with open_folder(tmp_path) as folder:
        folder.make("new").close()

    found = (tmp_path / "new").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (*FOREIGN, 0o750)


RACER = """
import sys
from pathlib import Path
from broker.app.files import write_atomic
path, letter = Path(sys.argv[1]), sys.argv[2]
print(flush=True)
sys.stdin.read(1)
for size in range(1, 200):
    write_atomic(path, letter * size * 500 + ".")
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_stays_as_it_was_when_its_writer_fails(tmp_path: Path) -> None:
    write_atomic(tmp_path / "conf", "before")

    with (
        suppress(KeyboardInterrupt),
        open_folder(tmp_path) as folder,
        replacing(folder, "conf") as half,
    ):
        half.write(b"after")
        raise KeyboardInterrupt

    assert (tmp_path / "conf").read_text() == "before"
    assert names(tmp_path) == ["conf"]


def test_a_secret_is_never_open_to_others_whatever_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open")
    (tmp_path / "secret").chmod(0o666)

    write_atomic(tmp_path / "secret", b"whole", 0o600)

    assert (tmp_path / "secret").read_bytes() == b"whole"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["secret"]


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "secret").symlink_to(tmp_path / "theirs")
    (tmp_path / "secret.tmp").symlink_to(tmp_path / "theirs")

    write_atomic(tmp_path / "secret", "ours")

    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / "secret").is_symlink()
    assert (tmp_path / "secret").read_text() == "ours"


@ONLY_ROOT
def test_what_root_writes_for_an_owner_is_his_and_the_rest_is_roots(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)

    with open_folder(tmp_path) as folder:
        write_for_owner(folder, "his", "x")
    write_atomic(tmp_path / "ours", "x")

    his, ours = (tmp_path / "his").stat(), (tmp_path / "ours").stat()
    assert (his.st_uid, his.st_gid, ours.st_uid) == (12345, 12346, 0)


def test_two_programs_that_write_one_file_never_leave_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "positions"
    with racer(path, "a") as one, racer(path, "b") as other:
        for program in (one, other):
            assert program.stdout is not None
            program.stdout.readline()
        for program in (one, other):
            assert program.stdin is not None
            program.stdin.write(b"\n")
            program.stdin.flush()
        seen = set()
        while one.poll() is None or other.poll() is None:
            if path.exists():
                text = path.read_text()
                seen.add((frozenset(text), len(text) % 500))

    assert (one.returncode, other.returncode) == (0, 0)
    assert seen <= {(frozenset("a."), 1), (frozenset("b."), 1)}
    assert names(tmp_path) == ["positions"]


@contextmanager
def racer(path: Path, letter: str) -> Iterator["subprocess.Popen[bytes]"]:
    program = subprocess.Popen(
        [sys.executable, "-c", RACER, path, letter], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with program:
        try:
            yield program
        finally:
            program.kill()


def test_what_a_killed_writer_left_goes_with_the_next_and_a_living_ones_stays(
    tmp_path: Path,
) -> None:
    for name in ("[mark].more", "mark.1.tmp", "[mark].2.tmp", "[mark].3.tmp"):
        (tmp_path / name).touch()
    for name in ("mark.1.tmp", "[mark].2.tmp"):
        os.utime(tmp_path / name, (0, 0))

    write_atomic(tmp_path / "[mark]", "")

    assert names(tmp_path) == ["[mark]", "[mark].3.tmp", "[mark].more", "mark.1.tmp"]
