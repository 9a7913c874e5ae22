"""`logbroker` pauses and resumes shippers with the least rights; each line arrives once."""

import json
from pathlib import Path

import pytest

from tests.pages import page, samples
from tests.secured import host, start_secured
from tests.shipper.conftest import wait_for_lines
from tests.shipper.logs import Ship, append, run, wait_for_log
from tests.support.commands import run_command
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


def test_paused_hosts_stop_and_report_it_while_others_ship(
    processes: Processes, ship: Ship, tmp_path: Path, own_host: str
) -> None:
    other = f"db-{own_host}"
    server = start_secured(processes, tmp_path, host(own_host), host(other))
    logs = {name: tmp_path / f"{name}.log" for name in (own_host, other)}

    def start(name: str, *options: str) -> Process:
        _, url, *access = server.options(name)
        return ship(url, "--file", logs[name], *access, *options, host=name)

    def logbroker(*arguments: str) -> str:
        return run_command("logbroker", *arguments, "--server", server.url())

    def waits_for_a_second() -> bool:
        metrics = samples(page(shipper, "/metrics")[1])
        return metrics["logshipper_oldest_unshipped_seconds"] > 1

    shipper, _ = (start(own_host, "--listen", "127.0.0.1:0"), start(other))
    for name in (own_host, other):
        append(logs[name], b"one\n")
    wait_for_lines(server.url(), b"one\none\n", shipper)
    answer = logbroker("pause", f"{own_host[:4]}*", "--reason", "disk is swapped")
    wait_for_log(shipper, "paused until ")
    append(logs[own_host], b"two\n")
    wait_until("a line waits for a second", waits_for_a_second, 40, [shipper])
    append(logs[other], b"other\n")
    wait_for_lines(server.url(), b"one\none\nother\n", shipper)
    reported, table = (run("status", *m, "--host", own_host) for m in (["--json"], []))
    health, (_, metrics) = page(shipper, "/healthz"), page(shipper, "/metrics")
    seen = logbroker("hosts"), logbroker("status")
    logbroker("resume")
    wait_for_log(shipper, "resumed")
    wait_for_lines(server.url(), b"one\none\nother\ntwo\n", shipper)
    logbroker("pause", "--for", "8s")  # it ends by the clock
    is_paused = lambda: shipper.read_log().count("paused until ") == 2  # noqa: E731
    wait_until("it is paused again", is_paused, 60, [shipper])
    append(logs[own_host], b"three\n")
    shipper.kill()
    shipper.start()

    wait_for_lines(server.url(), b"one\none\nother\ntwo\nthree\n", shipper)
    assert "disk is swapped" in answer
    (status,) = json.loads(reported.stdout)
    assert "paused until " in status["paused"]
    assert f"host {own_host}: running, pid " in table.stdout
    assert health == (200, f"{status['paused']}\n")
    assert "logshipper_paused 1.0" in metrics
    assert all("paused until " in shown for shown in seen)
    assert "Violation" not in server.read_log()
