"""A broker that runs on a folder is told of a change and waited for; where none runs, nobody is."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.server.neighbour import READY, STORE_LOCK, Taken, account_of, is_held, read_ready, tell
from broker.server.process import Process, this_process

BROKER = """
import fcntl, json, os, pathlib, signal, sys
from broker.server.process import this_process
folder, answer = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
descriptor = os.open(folder / "logbroker.lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
def say(credentials):
    us = this_process()
    about = {"pid": us.pid, "began": us.began, "credentials": credentials}
    (folder / "new").write_text(json.dumps(about))
    (folder / "new").rename(folder / "broker.json")
signal.signal(signal.SIGHUP, lambda *_: answer and say(answer))
say({"revision": 1, "secured": True})
while True:
    signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Give the folder of a program that stands for a broker, which says `request.param` when it is told."""
    program = subprocess.Popen([sys.executable, "-c", BROKER, tmp_path, json.dumps(request.param)])
    try:
        while not read_ready(tmp_path):
            assert program.poll() is None
        yield tmp_path
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize("folder", [account_of(2, secured=True)], indirect=True)
def test_a_broker_that_runs_is_told_and_waited_for(folder: Path) -> None:
    assert is_held(folder)
    assert tell(folder, 2, 20).taken is Taken.DONE


@pytest.mark.parametrize("folder", [account_of(3, secured=True)], indirect=True)
def test_a_later_change_that_came_with_it_counts_as_well(folder: Path) -> None:
    assert tell(folder, 2, 20).taken is Taken.DONE


@pytest.mark.parametrize("folder", [account_of(1, True, 2, "no such account")], indirect=True)
def test_what_a_broker_says_against_it_is_passed_on(folder: Path) -> None:
    taking = tell(folder, 2, 20)

    assert (taking.taken, taking.words) == (Taken.REFUSED, "no such account")


@pytest.mark.parametrize("folder", [None], indirect=True)
def test_a_broker_that_says_nothing_is_not_waited_for_for_ever(folder: Path) -> None:
    assert tell(folder, 2, 0.2).taken is Taken.UNKNOWN


def test_where_no_broker_runs_nobody_is_told_also_by_an_old_file(tmp_path: Path) -> None:
    assert tell(tmp_path, 1, 20).taken is Taken.NEXT_START
    (tmp_path / STORE_LOCK).touch()
    (tmp_path / READY).write_text(json.dumps({"pid": os.getpid()}))  # a broker that was killed
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))

    assert tell(tmp_path, 1, 20).taken is Taken.NEXT_START
    assert heard == []
    signal.signal(signal.SIGHUP, before)


def test_looking_whether_a_broker_runs_holds_nobody_up(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / STORE_LOCK, os.O_RDWR | os.O_CREAT)

    assert not is_held(tmp_path)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert is_held(tmp_path)
    os.close(descriptor)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_what_is_no_word_of_a_broker_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / READY).write_text(text)

    assert read_ready(tmp_path) == {}


def names_process(folder: Path, process: Process, user: int | None = None) -> int:
    """Hold a folder as a broker does, say that `process` is that, and return the lock's descriptor."""
    descriptor = os.open(folder / STORE_LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    about = {"pid": process.pid, "began": process.began, "credentials": account_of(1, True)}
    (folder / READY).write_text(json.dumps(about))
    if user is not None:
        os.chown(folder / READY, user, user)
    return descriptor


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """Give a process that has nothing to do with any broker, and that SIGHUP would end."""
    with subprocess.Popen(["sleep", "60"]) as program:
        yield program
        program.kill()


def test_a_process_that_has_the_number_by_now_is_not_signalled(
    tmp_path: Path, bystander: "subprocess.Popen[bytes]"
) -> None:
    descriptor = names_process(tmp_path, Process(bystander.pid, this_process().began - 1))

    with pytest.raises(OperatorError, match=rf"process {bystander.pid}, which .*broker.json names"):
        tell(tmp_path, 2, 20)

    assert bystander.poll() is None
    os.close(descriptor)


@pytest.mark.parametrize("pid", [None, "1", -1, 0, 2**40, 2**80])
def test_what_names_no_process_signals_nobody(tmp_path: Path, pid: object) -> None:
    descriptor = os.open(tmp_path / STORE_LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (tmp_path / READY).write_text(json.dumps({"pid": pid, "began": 1}))

    with pytest.raises(OperatorError, match="its broker was not told"):
        tell(tmp_path, 2, 20)
    os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root signals other users' processes")
def test_root_signals_no_process_of_another_user_than_the_one_who_named_it(
    tmp_path: Path, bystander: "subprocess.Popen[bytes]"
) -> None:
    began = int(Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
    descriptor = names_process(tmp_path, Process(bystander.pid, began), 12345)

    with pytest.raises(OperatorError, match="its broker was not told"):
        tell(tmp_path, 2, 20)

    assert bystander.poll() is None
    os.close(descriptor)


@pytest.mark.parametrize("name", [READY, STORE_LOCK])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_stands_in_the_place_of_a_brokers_file_is_not_read(
    tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / "there").write_text(json.dumps({"pid": os.getpid()}))
    if kind == "link":
        (tmp_path / name).symlink_to(tmp_path / "there")
    else:
        os.mkfifo(tmp_path / name)

    assert read_ready(tmp_path) == {}
    assert not is_held(tmp_path)
