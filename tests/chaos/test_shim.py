"""The shim under a real program: what it refuses, where, how often, and what it lets through."""

import subprocess
import sys
from collections.abc import Iterator
from errno import EIO, EROFS
from pathlib import Path

import pytest

from tests.chaos.shim import Calls, Control, Shim, have_compiler

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler for glibc here")

_PROGRAM = """
import os, sys, threading, time
for line in sys.stdin:
    try:
        print(repr(eval(line)))
    except OSError as error:
        print(error.errno)
    sys.stdout.flush()
"""


class Asked:
    """A Python that evaluates what it is told, with the shim in it."""

    def __init__(self, popen: "subprocess.Popen[str]", control: Control) -> None:
        self._popen = popen
        self.control = control

    def says(self, expression: str) -> str:
        assert self._popen.stdin
        assert self._popen.stdout
        self._popen.stdin.write(expression + "\n")
        self._popen.stdin.flush()
        return self._popen.stdout.readline().strip()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    shim = Shim(tmp_path_factory.mktemp("shim") / "made")
    environment = {"PATH": "/usr/bin:/bin", **shim.environment("python")}
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as popen:
        yield Asked(popen, shim.controls["python"])
        assert popen.stdin
        popen.stdin.close()


@pytest.fixture
def file(asked: Asked, tmp_path: Path) -> Iterator[str]:
    number = asked.says(f"os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_RDWR)")
    yield number
    asked.control.rest()
    asked.control.step(0)
    asked.says(f"os.close({number})")


def test_a_sync_fails_so_many_times_and_then_works_again(
    asked: Asked, file: str, tmp_path: Path
) -> None:
    asked.control.refuse(Calls.SYNC, tmp_path, error=EIO, times=2)

    answers = [asked.says(f"os.{call}({file})") for call in ("fsync", "fdatasync", "fsync")]

    assert answers == [str(EIO), str(EIO), "None"]
    assert asked.control.hits == 2


def test_a_write_writes_half(asked: Asked, file: str, tmp_path: Path) -> None:
    asked.control.refuse(Calls.WRITE, tmp_path)

    written = [
        asked.says(f"os.write({file}, b'ten bytes.')"),
        asked.says(f"os.pwrite({file}, b'ten bytes.', 5)"),
        asked.says(f"os.writev({file}, [b'four', b'more'])"),
    ]

    assert written == ["5", "5", "4"]
    assert (tmp_path / "file").read_bytes() == b"ten bfourb"


CHANGES = (
    "open('{0}/other', 'wb')",
    "os.open('other', os.O_WRONLY | os.O_CREAT, dir_fd=os.open('{0}', os.O_RDONLY))",
    "os.rename('{0}/file', '{0}/renamed')",
    "os.unlink('{0}/file')",
    "os.mkdir('{0}/folder')",
    "os.truncate('{0}/file', 3)",
    "os.ftruncate({1}, 3)",
    "os.write({1}, b'x')",
)


def test_nothing_changes_on_a_disk_that_is_read_only(
    asked: Asked, file: str, tmp_path: Path
) -> None:
    asked.control.refuse(Calls.ALL, tmp_path, error=EROFS)

    answers = [asked.says(change.format(tmp_path, file)) for change in CHANGES]

    assert answers == [str(EROFS)] * len(CHANGES)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert asked.says(f"open('{tmp_path}/file').read()") == "''"


def test_other_folders_are_left_alone(asked: Asked, file: str, tmp_path: Path) -> None:
    asked.control.refuse(Calls.ALL, tmp_path / "fil", error=EIO)

    answers = [asked.says(f"os.write({file}, b'x')"), asked.says(f"os.fsync({file})")]

    assert answers == ["1", "None"]


def test_a_sync_takes_longer(asked: Asked, file: str, tmp_path: Path) -> None:
    asked.control.refuse(Calls.SYNC, tmp_path, delay=0.05)

    took = asked.says(f"(time.monotonic(), os.fsync({file}), time.monotonic())")

    before, _, after = eval(took)
    assert after - before >= 0.05


def test_the_clock_is_stepped_and_stepped_back(asked: Asked, file: str) -> None:
    day = 86400.0
    true = float(asked.says("time.time()"))

    asked.control.step(-day)
    early = float(asked.says("time.time()"))
    asked.control.step(day)
    late, since_start = eval(asked.says("(time.time(), time.monotonic())"))
    asked.control.step(0)

    assert early - true == pytest.approx(-day, abs=60)
    assert late - true == pytest.approx(day, abs=60)
    assert float(asked.says("time.monotonic()")) - since_start < 60
