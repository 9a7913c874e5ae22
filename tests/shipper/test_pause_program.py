"""Shippers with the least rights are paused and resumed by `logbroker`: they say so, others go on, and each line comes once."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.secured import host, start_secured
from tests.shipper.conftest import read_lines
from tests.shipper.logs import Ship, run, says
from tests.support.commands import run_command
from tests.support.oracle import judge
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import ask
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


def messages_of(url: str) -> dict[str, int]:
    """Return how many messages there are of each host."""
    asked = {"subjects_filter": "logs.>"}
    stream = ask(url, lambda connection: connection.api("STREAM.INFO.LOGS", asked))
    subjects = stream["state"].get("subjects") or {}
    return {subject.split(".", 2)[2]: count for subject, count in subjects.items()}


def test_hosts_of_a_glob_stop_within_two_seconds_and_say_so_while_others_go_on(
    processes: Processes, ship: Ship, tmp_path: Path, free_port: Callable[[], int], own_host: str
) -> None:
    other, page = f"db-{own_host}", f"127.0.0.1:{free_port()}"
    server = start_secured(processes, tmp_path, host(own_host), host(other))
    logs = {name: tmp_path / f"{name}.log" for name in (own_host, other)}

    def start(name: str, *options: str) -> Process:
        _, url, *access = server.options(name)
        return ship(url, "--file", logs[name], *access, *options, host=name)

    def logbroker(*words: str) -> str:
        return run_command("logbroker", *words, "--server", server.url())

    shipper, _ = start(own_host, "--listen", page), start(other)
    with Traffic(list(logs.values()), 100) as traffic:
        wait_until("both ship", lambda: len(messages_of(server.url())) == 2, 60, [shipper])
        said = logbroker("pause", f"{own_host[:4]}*", "--reason", "disk is swapped")
        says(shipper, "paused until ")
        time.sleep(2)  # within which a round under way has come
        before = messages_of(server.url())
        time.sleep(1)  # in which others ship
        after = messages_of(server.url())
        reported, table = (run("status", *m, "--host", own_host) for m in (["--json"], []))
        health = urllib.request.urlopen(f"http://{page}/healthz", timeout=10)
        metrics = urllib.request.urlopen(f"http://{page}/metrics", timeout=10).read()
        seen = logbroker("hosts"), logbroker("status")
        logbroker("resume")
        says(shipper, "resumed")
        logbroker("pause", "--for", "3s")  # which is over by time
        is_paused = lambda: shipper.said().count("paused until ") == 2  # noqa: E731
        wait_until("it is paused again", is_paused, 60, [shipper])
        shipper.kill()
        shipper.start()

    assert after[own_host] == before[own_host]
    assert after[other] > before[other]
    assert "disk is swapped" in said
    (status,) = json.loads(reported.stdout)
    assert "paused until " in status["paused"]
    assert f"host {own_host}: running, pid " in table.stdout
    assert (health.status, health.read().decode()) == (200, f"{status['paused']}\n")
    assert b"logshipper_paused 1.0" in metrics
    assert all("paused until " in shown for shown in seen)
    written = [traffic.written[log] for log in logs.values()]
    has_come = lambda: len(read_lines(server.url())) >= sum(map(len, written))  # noqa: E731
    wait_until("all lines are there", has_come, 40, [shipper])
    verdict = judge(written, read_lines(server.url()))
    assert verdict.is_perfect, str(verdict)
    assert "Violation" not in server.said()
