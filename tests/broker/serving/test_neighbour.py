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

from broker.serving.neighbour import READY, STORE_LOCK, Taken, account_of, is_held, read_ready, tell

BROKER = """
import fcntl, json, os, pathlib, signal, sys
folder, answer = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
descriptor = os.open(folder / "logbroker.lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
def say(credentials):
    (folder / "new").write_text(json.dumps({"pid": os.getpid(), "credentials": credentials}))
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
