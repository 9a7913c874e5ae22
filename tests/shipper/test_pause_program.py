"""Shippers with the least rights are paused and resumed by `logbroker`: they say so, others go on, and each line comes once."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.secured import host, start_secured
from tests.shipper.conftest import arrives
from tests.shipper.logs import Ship, append, run, says
from tests.support.commands import run_command
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


def test_hosts_of_a_glob_stop_and_say_so_while_others_go_on(
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

    shipper, _ = (start(own_host, "--listen", page), start(other))
    for name in (own_host, other):
        append(logs[name], b"one\n")
    arrives(server.url(), b"one\none\n", shipper)
    told = logbroker("pause", f"{own_host[:4]}*", "--reason", "disk is swapped")
    says(shipper, "paused until ")
    time.sleep(2)  # within which a round under way has come
    append(logs[own_host], b"two\n")
    time.sleep(1)  # in which it would come
    append(logs[other], b"other\n")
    arrives(server.url(), b"one\none\nother\n", shipper)
    reported, table = (run("status", *m, "--host", own_host) for m in (["--json"], []))
    health = urllib.request.urlopen(f"http://{page}/healthz", timeout=10)
    metrics = urllib.request.urlopen(f"http://{page}/metrics", timeout=10).read()
    seen = logbroker("hosts"), logbroker("status")
    logbroker("resume")
    says(shipper, "resumed")
    arrives(server.url(), b"one\none\nother\ntwo\n", shipper)
    logbroker("pause", "--for", "3s")  # which is over by time
    is_paused = lambda: shipper.said().count("paused until ") == 2  # noqa: E731
    wait_until("it is paused again", is_paused, 60, [shipper])
    append(logs[own_host], b"three\n")
    shipper.kill()
    shipper.start()

    arrives(server.url(), b"one\none\nother\ntwo\nthree\n", shipper)
    assert "disk is swapped" in told
    (status,) = json.loads(reported.stdout)
    assert "paused until " in status["paused"]
    assert f"host {own_host}: running, pid " in table.stdout
    assert (health.status, health.read().decode()) == (200, f"{status['paused']}\n")
    assert b"logshipper_paused 1.0" in metrics
    assert all("paused until " in shown for shown in seen)
    assert "Violation" not in server.said()
