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
def test_it_is_ready_when_it_follows_and_feeds_the_watchdog_but_not_while_the_loop_is_stuck(
    logs_url: str, ship: Ship, manager: Manager, tmp_path: Path
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"a line\n")
    endless = "(a+)+$"  # tries for longer than anyone can wait
    process = ship(logs_url, "--file", log, "--exclude-lines", endless, WATCHDOG_USEC="500000")
    wait_until("is ready", lambda: manager.has_heard("READY=1"), 40, [process])
    assert "is followed" in process.said()
    assert manager.has_heard("STATUS=1 file, ")
    wait_until("is fed", lambda: manager.listen().count("WATCHDOG=1") > 2, 40, [process])

    log.write_bytes(b"a line\n" + b"a" * 60 + b"b\n")

    def is_not_fed() -> bool:
        manager.forget()
        time.sleep(1.5)  # three times the watchdog's patience
        return not manager.has_heard("WATCHDOG=1")

    wait_until("is not fed any more", is_not_fed, 40, [process])
    process.check()
    process.kill()
