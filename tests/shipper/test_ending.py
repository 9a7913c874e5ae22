"""SIGTERM ends the program in order within ten seconds, whatever it is doing just then."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.descriptors import held_by
from tests.shipper.logs import Ship, append
from tests.support.processes import Process, wait_until

pytestmark = pytest.mark.nats


@pytest.fixture
def silent(own_broker: Any) -> Iterator[Any]:
    """Return a broker that a test may stop in its tracks: its connections stay, and nothing comes over them."""
    yield own_broker
    os.kill(own_broker.process.pid, signal.SIGCONT)


def hush(server: Any) -> None:
    os.kill(server.process.pid, signal.SIGSTOP)


def listens(process: Process) -> bool:
    """Whether it would tell its status."""
    lines = Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()
    sockets = {f"socket:[{line.split()[6]}]" for line in lines if "@logship/agent/web01/" in line}
    return not sockets.isdisjoint(held_by(process.pid))


def seconds_to_end(process: Process) -> float:
    began = time.monotonic()
    assert process.stop(15) == 0, process.last_words()
    assert "Traceback" not in process.log.read_text()
    return time.monotonic() - began


def test_while_a_broker_that_fell_silent_owes_an_acknowledgement(
    silent: Any, ship: Ship, tmp_path: Path
) -> None:
    (tmp_path / "a.log").touch()
    process = ship(silent.url, "--file", tmp_path / "a.log")
    wait_until("follows", lambda: "is followed" in process.said(), 40, [process])
    hush(silent)
    append(tmp_path / "a.log", b"a line\n")
    time.sleep(0.5)

    assert seconds_to_end(process) < 10


@pytest.mark.parametrize("after", [0.0, 0.02])
def test_while_a_broker_is_silent_in_the_middle_of_the_start(
    silent: Any, ship: Ship, tmp_path: Path, after: float
) -> None:
    (tmp_path / "a.log").write_bytes(b"a line\n")
    process = ship(silent.url, "--file", tmp_path / "a.log")
    deadline = time.monotonic() + 20
    while not listens(process) and time.monotonic() < deadline:
        time.sleep(0.001)  # it connects, claims and reads back in some milliseconds from here
    time.sleep(after)
    hush(silent)

    assert seconds_to_end(process) < 10


def test_while_it_follows_ten_thousand_files(logs_url: str, ship: Ship, tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"{number}.log").touch()
    options = (logs_url, "--file", tmp_path / "*.log", "--log-level", "warning")

    looking = ship(*options)
    wait_until("runs", lambda: looking.catches(signal.SIGTERM), 40, [looking])
    while_it_looks = seconds_to_end(looking)
    following = ship(*options)
    wait_until("runs", lambda: listens(following), 40, [following])
    time.sleep(1)
    while_it_follows = seconds_to_end(following)

    assert while_it_looks < 10
    assert while_it_follows < 10
