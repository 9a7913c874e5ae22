"""`logbroker run` with limits that would delete, with streams in memory, and with a configuration of one's own."""

import asyncio
import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection

pytestmark = pytest.mark.nats


async def publish_and_look(url: str, messages: int) -> dict[str, Any]:
    connection = Connection([url], "test")
    try:
        for number in range(messages):
            await connection.ask(f"logs.p0.web{number}", b"line\n")
        return await connection.api("STREAM.INFO.LOGS")
    finally:
        await connection.close()


def test_a_start_with_a_lower_limit_deletes_nothing_and_says_how_to(start_broker: Any) -> None:
    broker = start_broker("--partitions", "1")
    asyncio.run(publish_and_look(broker.wait_ready()["server"], 5))
    broker.end()
    time.sleep(1.1)

    again = start_broker("--partitions", "1", "--max-age", "1s", "--max-consumers", "50")
    info = asyncio.run(publish_and_look(again.wait_ready()["server"], 0))

    assert info["state"]["messages"] == 5
    assert (info["config"]["max_age"], info["config"]["max_consumers"]) == (86_400 * 10**9, 50)
    assert "LOGS keeps its max_age, since the change deletes 5 of 5 messages" in again.said


def test_streams_in_memory_are_bounded_by_it_and_said(start_broker: Any) -> None:
    broker = start_broker("--storage", "memory", "--memory", "128MiB", "--partitions", "2")

    config = asyncio.run(publish_and_look(broker.wait_ready()["server"], 1))["config"]

    assert config["storage"] == "memory"
    assert 10**7 < config["max_bytes"] < 64 * 1024**2
    assert "storage = memory: acknowledged is not on disk" in broker.said


def test_a_configuration_of_ones_own_is_run_and_read_again(
    start_broker: Any, tmp_path: Path
) -> None:
    own = tmp_path / "own.conf"
    own.write_text("max_connections: 77\n", "utf-8")
    broker = start_broker("--nats-config", str(own), "--http", "127.0.0.1:0")
    url = f"{broker.wait_ready()['http']}/varz"

    def most() -> int:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(json.load(answer)["max_connections"])

    assert most() == 77
    own.write_text("max_connections: 78\n", "utf-8")
    broker.popen.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while most() != 78:
        assert time.monotonic() < deadline, broker.said
        time.sleep(0.05)


def test_a_configuration_of_ones_own_that_contradicts_ours_is_refused_by_name(
    start_broker: Any, tmp_path: Path
) -> None:
    own = tmp_path / "own.conf"
    own.write_text("max_connections: 77\nport: 4333\n", "utf-8")

    refused = start_broker("--nats-config", str(own))

    assert refused.popen.wait(60) == 78
    assert refused.said == f"logbroker: {own}:2: port cannot be set here: use --listen\n"
