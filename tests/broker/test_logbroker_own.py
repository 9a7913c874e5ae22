"""`logbroker run` with limits that would delete, and with a configuration of one's own."""

import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


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
