"""The program under a service manager, a socket of the test's own that hears what systemd would; and its signals."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.manager import Manager
from tests.shipper.logs import Ship
from tests.support.processes import Process, wait_until


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


@pytest.fixture
def ship(ship: Ship, manager: Manager) -> Ship:
    def start(url: str, *options: object, **environment: str) -> Process:
        return ship(url, *options, environment={"NOTIFY_SOCKET": manager.address, **environment})

    return start


@pytest.mark.nats
def test_systemd_hears_of_the_start_of_a_reload_and_of_the_end(
    logs_url: str, ship: Ship, manager: Manager, tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(b"a line\n")
    process = ship(logs_url, "--file", tmp_path / "a.log")
    wait_until("is ready", lambda: manager.has_heard("READY=1"), 40, [process])
    followed = process.said()
    status = manager.heard[0]
    manager.forget()

    os.kill(process.pid, signal.SIGHUP)
    wait_until("has read them again", lambda: manager.has_heard("READY=1"), 30, [process])
    reloading = next(said for said in manager.heard if said.startswith("RELOADING=1"))

    assert process.stop(10) == 0
    assert "is followed" in followed
    assert status.startswith("STATUS=1 file, ")
    assert reloading.splitlines()[0] == "RELOADING=1"
    microseconds = int(reloading.splitlines()[1].removeprefix("MONOTONIC_USEC="))
    assert 0 <= time.monotonic_ns() // 1000 - microseconds < 60_000_000
    assert manager.listen()[-1] == "STOPPING=1"


def test_without_a_broker_it_is_ready_and_says_what_it_waits_for(
    ship: Ship, manager: Manager, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    process = ship(f"nats://127.0.0.1:{free_port()}", "--file", tmp_path / "a.log")

    wait_until("is ready", lambda: manager.has_heard("READY=1"), 40, [process])

    assert manager.heard[0].startswith("STATUS=waiting for the broker: ")
    os.kill(process.pid, signal.SIGHUP)
    wait_until("reads again", lambda: manager.has_heard("RELOADING=1"), 30, [process])
    assert process.stop(10) == 0


@pytest.mark.nats
def test_the_watchdog_is_fed_while_there_is_nothing_to_do_and_not_while_the_loop_is_stuck(
    logs_url: str, ship: Ship, manager: Manager, tmp_path: Path
) -> None:
    log = tmp_path / "a.log"
    log.touch()
    endless = "(a+)+$"  # tries for longer than anyone can wait
    process = ship(logs_url, "--file", log, "--exclude-lines", endless, WATCHDOG_USEC="500000")
    wait_until("is fed", lambda: manager.listen().count("WATCHDOG=1") > 2, 40, [process])

    log.write_bytes(b"a" * 60 + b"b\n")

    def is_not_fed() -> bool:
        manager.forget()
        time.sleep(1.5)  # three times the watchdog's patience
        return not manager.has_heard("WATCHDOG=1")

    wait_until("is not fed any more", is_not_fed, 40, [process])
    process.check()
    process.kill()
