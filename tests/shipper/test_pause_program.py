"""Shippers that are paused and resumed by `logbroker`: programs, a real broker, and each line once in the end."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from tests.shipper.logs import Ship, run, says
from tests.shipper.saved import on
from tests.support.processes import Process, wait_until
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


def logbroker(url: str, *words: str) -> str:
    done = run(*words, "--server", url, program="broker")
    assert done.returncode == 0, done.stderr
    return done.stdout


def messages_of(url: str) -> dict[str, int]:
    """Return how many messages there are of each host."""

    async def ask(connection: Connection) -> dict[str, Any]:
        return await connection.api("STREAM.INFO.LOGS", {"subjects_filter": "logs.>"})

    subjects = on(url, ask)["state"].get("subjects") or {}
    return {subject.split(".", 2)[2]: count for subject, count in subjects.items()}


def test_hosts_of_a_glob_stop_within_two_seconds_and_say_so_while_others_go_on(
    logs_url: str, ship: Ship, tmp_path: Path, free_port: Callable[[], int], own_host: str
) -> None:
    paused, other = tmp_path / "paused.log", tmp_path / "other.log"
    page = f"127.0.0.1:{free_port()}"
    shipper = ship(logs_url, "--file", paused, "--listen", page, host=own_host)
    ship(logs_url, "--file", other, host=f"db-{own_host}")

    with Traffic([paused, other], 100) as traffic:
        wait_until("both ship", lambda: len(messages_of(logs_url)) == 2, 60, [shipper])
        said = logbroker(logs_url, "pause", f"{own_host[:4]}*", "--reason", "disk is swapped")
        is_paused(shipper, 1)
        time.sleep(2)  # within which a round under way has come
        before = messages_of(logs_url)
        time.sleep(1)  # in which others ship
        after = messages_of(logs_url)
        reported = run("status", "--json", "--server", logs_url, "--host", own_host)
        health = urllib.request.urlopen(f"http://{page}/healthz", timeout=10)
        metrics = urllib.request.urlopen(f"http://{page}/metrics", timeout=10).read()
        seen = logbroker(logs_url, "hosts"), logbroker(logs_url, "status")
        logbroker(logs_url, "resume")
        says(shipper, "resumed")
        logbroker(logs_url, "pause", "--for", "3s")  # which is over by time
        is_paused(shipper, 2)
        held = messages_of(logs_url)[own_host]
        wait_until("it goes on", lambda: messages_of(logs_url)[own_host] > held, 30, [shipper])

    assert after[own_host] == before[own_host]
    assert after[f"db-{own_host}"] > before[f"db-{own_host}"]
    assert "disk is swapped" in said
    (status,) = json.loads(reported.stdout)
    assert "paused until " in status["paused"]
    assert (health.status, health.read().decode()) == (200, f"{status['paused']}\n")
    assert b"logshipper_paused 1.0" in metrics
    assert all("paused until " in shown for shown in seen)
    assert len(traffic.written[paused]) > 0
    assert after[own_host] < held
    assert shipper.said().count("resumed: the pause is over") == 2


def is_paused(shipper: Process, times: int) -> None:
    def has_said_so() -> bool:
        return shipper.said().count("paused until ") == times

    wait_until("it is paused", has_said_so, 60, [shipper])
