"""The program under a service manager, which is a socket of the test, and its signals."""

import ctypes
import os
import resource
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Server, apply_topology
from tests.descriptors import held_by
from tests.manager import Manager
from tests.shipper.conftest import live_report, read_lines, read_stream, wait_for_lines
from tests.shipper.logs import Ship, append, wait_for_log
from tests.support.ports import free_port
from tests.support.processes import Process, wait_until
from tests.support.suite import ask

pytestmark = pytest.mark.nats


def test_without_a_broker_the_program_is_ready_and_names_what_it_waits_for(
    own_server: Server, ship: Ship, manager: Manager, log: Path
) -> None:
    own_server.stop()
    environment = {"NOTIFY_SOCKET": manager.address}
    process = ship(own_server.url, "--file", log, environment=environment)

    wait_until("is ready", lambda: manager.has_received("READY=1"), 40, [process])

    assert manager.received[0].startswith("STATUS=waiting for the broker: ")
    process.hang_up()
    wait_until("reads again", lambda: manager.has_received("RELOADING=1"), 30, [process])
    own_server.start()
    wait_for_log(process, "run `logbroker apply`")
    apply_topology(own_server.url)
    wait_for_lines(own_server.url, b"one\n", process)
    assert process.stop(10) == 0


def test_the_watchdog_is_fed_except_while_the_event_loop_hangs(
    logs_url: str, ship: Ship, manager: Manager, log: Path
) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "500000"}
    process = ship(logs_url, "--file", log, environment=environment)
    wait_until("is ready", lambda: manager.has_received("READY=1"), 40, [process])
    assert "is followed" in process.read_log()
    assert manager.has_received("STATUS=1 file, ")
    wait_until("is fed", lambda: manager.listen().count("WATCHDOG=1") > 2, 40, [process])

    def is_not_fed() -> bool:
        manager.forget()
        time.sleep(1.5)  # three times the watchdog's patience
        return not manager.has_received("WATCHDOG=1")

    with main_thread_stopped(process.pid):
        wait_until("is not fed any more", is_not_fed, 40, [process])
    wait_until("is fed again", lambda: manager.has_received("WATCHDOG=1"), 40, [process])


@contextmanager
def main_thread_stopped(pid: int) -> Iterator[None]:
    """Stop only the thread of a process that runs its event loop (ptrace(2))."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    seize, interrupt, detach, threads = 0x4206, 0x4207, 17, 0x40000000
    for request in (seize, interrupt):
        assert ptrace(request, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, threads)
    try:
        yield
    finally:
        ptrace(detach, pid, None, None)


BACKTRACKING = ("^(a+)+$", "(a|aa)+$", "(a*)*c", "(.*a){20}x", "(a?){40}a{40}c", "(?i)(A+a+)+c$")
"""Expressions for which a backtracking search takes too long."""


def test_no_expression_delays_lines_health_a_reload_or_the_end(
    logs_url: str, ship: Ship, log: Path, tmp_path: Path
) -> None:
    config, address = tmp_path / "shipper.toml", f"127.0.0.1:{free_port()}"
    excluded = f"exclude_lines = {[*BACKTRACKING]}\n"
    config.write_text(f'file = ["{log}"]\nlisten = "{address}"\n{excluded}')
    process = ship(logs_url, "--config", config)
    append(log, b"a" * 40 + b"B\n" + b"a" * 40 + b"\nlast\n")

    wait_for_lines(logs_url, b"one\n" + b"a" * 40 + b"B\nlast\n", process)

    append(log, (b"a" * 1000 + b"B\n") * 2000)
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=5) as healthy:
        assert healthy.status == 200
    config.write_text(config.read_text().replace(excluded, 'exclude_lines = ["^a"]\n'))
    process.hang_up()
    wait_for_log(process, "changed: exclude_lines")
    ends_in_time(process)


def ends_in_time(process: Process) -> None:
    began = time.monotonic()
    assert process.stop(15) == 0, process.last_output()
    assert "Traceback" not in process.log.read_text()
    assert time.monotonic() - began < 12


@pytest.mark.parametrize("phase", ["starts", "scans", "ships"])
def test_sigterm_ends_the_program_in_time_while_a_broker_hangs(
    own_broker: Server, ship: Ship, log: Path, phase: str
) -> None:
    process = ship(own_broker.url, "--file", log)
    # it connects, claims and reads back in some milliseconds from here
    wait_until("runs", lambda: process.catches(signal.SIGTERM), 40, [process], every=0.001)
    if phase == "scans":
        wait_until("claims", lambda: "ships on" in process.read_log(), 40, [process], every=0.001)
    elif phase == "ships":
        wait_for_lines(own_broker.url, b"one\n", process)
    own_broker.process.send(signal.SIGSTOP)  # its connections stay open and silent
    append(log, b"a line\n")
    if phase == "ships":
        is_in_flight = lambda: live_report(process).waiting_seconds is not None  # noqa: E731
        wait_until("a round is in flight", is_in_flight, 40, [process])

    ends_in_time(process)


@pytest.mark.long
def test_sigterm_ends_the_program_in_time_with_ten_thousand_files(
    logs_url: str, ship: Ship, tmp_path: Path
) -> None:
    for number in range(10_000):
        append(tmp_path / f"{number}.log", b"%d\n" % number)
    options = (logs_url, "--file", tmp_path / "*.log", "--log-level", "warning")

    looking = ship(*options)
    wait_until("runs", lambda: looking.catches(signal.SIGTERM), 40, [looking])
    ends_in_time(looking)
    # not a fork, which is too quick for the limit
    following = ship(*options, redirection="< /dev/null")
    resource.prlimit(following.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    has_come = lambda: read_lines(logs_url).count(b"\n") >= 10_000  # noqa: E731
    wait_until("all lines are there", has_come, 60, [following], every=0.5)
    most = len(held_by(following.pid))
    ends_in_time(following)

    assert most < 700
    messages = ask(logs_url, read_stream)
    assert sorted(int(n) for one in messages for n in one.lines.split()) == list(range(10_000))
    assert len(messages) < 100  # a round has the lines of many files
