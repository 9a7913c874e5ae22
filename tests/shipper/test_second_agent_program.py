"""One agent of a host runs on a machine: another one refuses, and what would ship nothing claims nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shipper.children import run_child
from tests.shipper.logs import ReadBack, Ship, append
from tests.support.processes import Process, wait_until

pytestmark = pytest.mark.nats


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    return path


@pytest.fixture
def running(logs_url: str, ship: Ship, log: Path, read_back: ReadBack) -> Process:
    """Return the agent of web01, which has shipped a line."""
    process = ship(logs_url, "--file", log)
    wait_until("it ships", lambda: read_back(logs_url) == b"one\n", 40, [process])
    return process


@pytest.mark.parametrize("options", [[], ["--once"]], ids=["follows", "once"])
def test_a_second_agent_of_the_host_refuses_while_the_first_lives(
    logs_url: str, running: Process, ship: Ship, log: Path, read_back: ReadBack, options: list[str]
) -> None:
    second = ship(logs_url, "--file", log, *options)

    assert second.wait(60) == 1
    assert second.said() == (
        f"logshipper: logshipper (pid {running.pid}) ships for web01 on this machine; stop it, or use --take-over"
    )
    append(log, b"two\n")
    wait_until("it goes on", lambda: read_back(logs_url) == b"one\ntwo\n", 40, [running])
    assert running.stop(12) == 0


def test_agents_of_other_hosts_and_at_other_brokers_start_beside_it(
    logs_url: str,
    second_url: str,
    apply_logs: Callable[[str], None],
    running: Process,
    ship: Ship,
    log: Path,
) -> None:
    apply_logs(second_url)

    assert ship(logs_url, "--file", log, "--once", host="web02").wait(60) == 0
    assert ship(second_url, "--file", log, "--once").wait(60) == 0

    assert running.stop(12) == 0


def test_once_without_its_file_claims_nothing_even_when_it_may_take_over(
    logs_url: str, running: Process, ship: Ship, log: Path, tmp_path: Path, read_back: ReadBack
) -> None:
    missing = tmp_path / "missing/x.log"

    mistyped = ship(logs_url, "--file", log, "--file", missing, "--once", "--take-over")

    assert mistyped.wait(60) == 1
    assert f"{missing}: is not there yet; nothing was" in mistyped.said()
    append(log, b"two\n")
    wait_until("it goes on", lambda: read_back(logs_url) == b"one\ntwo\n", 40, [running])
    assert running.stop(12) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be two users")
def test_another_user_who_holds_the_name_stops_no_agent(open_folder: Path) -> None:
    run_child("beside_a_stranger", open_folder)
