"""`logbroker run` with limits that would delete, and with a configuration of one's own."""

import asyncio
import json
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from tests.support.processes import wait_until

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

    again = start_broker("--partitions", "1", "--max-age", "1s", "--max-msgs", "5000")
    info = asyncio.run(publish_and_look(again.wait_ready()["server"], 0))

    assert info["state"]["messages"] == 5
    assert (info["config"]["max_age"], info["config"]["max_msgs"]) == (86_400 * 10**9, 5000)
    assert "LOGS keeps its max_age, since the change deletes what is from before" in again.said


def test_settings_of_nats_server_count_and_are_read_again(
    start_broker: Any, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[nats]\nmax_connections = 77\n", "utf-8")
    broker = start_broker("--config", str(config), "--http", "127.0.0.1:0")
    url = f"{broker.wait_ready()['http']}/varz"

    def most() -> int:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(json.load(answer)["max_connections"])

    assert most() == 77
    config.write_text("nats = { max_connections = 78 }\n", "utf-8")
    broker.popen.send_signal(signal.SIGHUP)
    wait_until("it is read again", lambda: most() == 78, 20)

    config.write_text("[nats]\nmax_connection = 79\n", "utf-8")
    broker.popen.send_signal(signal.SIGHUP)
    wait_until("it is refused", lambda: "keeping current settings" in broker.said, 20)
    assert "max_connection" in broker.said
    assert most() == 78


def test_settings_of_nats_server_that_logbroker_decides_are_refused_by_name(
    start_broker: Any,
) -> None:
    refused = start_broker(environment={"LOGBROKER_NATS": '{"port": 4333}'})

    assert refused.popen.wait(60) == 78
    assert "[nats] port: logbroker sets this itself" in refused.said


def test_the_first_credential_restarts_a_monitored_server_on_the_same_ports(
    start_broker: Any, logbroker: Callable[..., Any], tmp_path: Path
) -> None:
    broker = start_broker("--http", "127.0.0.1:0")
    before = broker.wait_ready()

    words = ("add", "admin", "ops", "--store-dir", broker.store, "--output", tmp_path / "ops.toml")
    logbroker("credentials", *words).check_returncode()

    wait_until("it is restarted", lambda: broker.said.count("ready: ") == 2, 30)
    after = broker.wait_ready()
    assert after["server"] == before["server"]
    assert after["http"].startswith(before["http"] + "/")  # a secret path from now on
    assert after["nats_server_pid"] != before["nats_server_pid"]
    assert after["pid"] == before["pid"]
