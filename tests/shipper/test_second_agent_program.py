"""One agent of a host runs on a machine: another one refuses, and what would ship nothing claims nothing."""

import os
from pathlib import Path

import pytest

from tests.shipper.children import run_child
from tests.shipper.conftest import apply_logs, arrives
from tests.shipper.logs import Ship, append
from tests.support.processes import Process

pytestmark = pytest.mark.nats


def test_a_second_agent_of_the_host_refuses_and_those_of_others_start_beside_the_first(
    logs_url: str,
    second_url: str,
    ship: Ship,
    tmp_path: Path,
) -> None:
    apply_logs(second_url)
    log, missing = tmp_path / "a.log", tmp_path / "missing/x.log"
    log.write_bytes(b"one\n")
    first = ship(logs_url, "--file", log)
    arrives(logs_url, b"one\n", first)

    follows, once = ship(logs_url, "--file", log), ship(logs_url, "--file", log, "--once")
    mistyped = ship(logs_url, "--file", log, "--file", missing, "--once", "--take-over")
    at_another = ship(second_url, "--file", log, "--once")

    refusal = f"logshipper: logshipper (pid {first.pid}) ships for web01 on this machine; stop it, or use --take-over"
    assert [said(process, 1) for process in (follows, once)] == [refusal] * 2
    assert f"{missing}: is not there yet; nothing was" in said(mistyped, 1)
    said(at_another, 0)
    append(log, b"two\n")
    arrives(logs_url, b"one\ntwo\n", first)
    said(ship(logs_url, "--file", log, "--once", host="web02"), 0)
    assert first.stop(12) == 0


def said(process: Process, code: int) -> str:
    """Return what a program said that ended with this code."""
    assert process.wait(60) == code, process.last_words()
    return process.said()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be two users")
def test_another_user_who_holds_the_name_stops_no_agent(open_folder: Path) -> None:
    run_child("beside_a_stranger", open_folder)
