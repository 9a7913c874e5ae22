"""`logbroker run` as operators meet it: real signals, real ports, a real nats-server."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_and_its_server_cleanly(start_broker: Any, number: int) -> None:
    broker = start_broker()
    child = broker.wait_ready()["nats_server_pid"]

    assert broker.end(number) == 0

    assert not is_alive(child)
    assert not (broker.store / "broker.json").exists()


def test_a_broker_killed_at_any_moment_leaves_no_server_behind(
    start_broker: Any,
) -> None:
    for delay in (0.15, 0.25, 0.3, 0.35, 0.4, 0.5, None):
        broker = start_broker()
        broker.wait_ready() if delay is None else time.sleep(delay)
        broker.end(signal.SIGKILL)

    mine = str(broker.store).encode()

    def is_gone() -> bool:
        return not [pid for pid in Path("/proc").glob("[0-9]*") if mine in _command(pid)]

    wait_until("no server is left", is_gone, 20)


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_server_that_dies_by_itself_ends_the_broker_with_one_line(start_broker: Any) -> None:
    broker = start_broker()
    child = broker.wait_ready()["nats_server_pid"]
    before = len(broker.said.splitlines())

    os.kill(child, signal.SIGKILL)

    assert broker.popen.wait(10) == 1
    assert broker.said.splitlines()[before:] == ["logbroker: nats-server ended (killed by SIGKILL)"]


def test_a_server_that_hangs_is_killed_within_ten_seconds(start_broker: Any) -> None:
    broker = start_broker()
    child = broker.wait_ready()["nats_server_pid"]
    os.kill(child, signal.SIGSTOP)

    begun = time.monotonic()
    assert broker.end() == 0

    assert time.monotonic() - begun < 10
    assert not is_alive(child)


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_in_use_is_one_line_that_names_it(
    tmp_path: Path, logbroker: Callable[..., Any], option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        rest = {"--listen": "127.0.0.1:0", "--http": ""} | {option: address}
        ended = logbroker(
            "run", "--store-dir", tmp_path / "s", *[x for p in rest.items() for x in p]
        )

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"cannot listen on {address}: address already in use" in ended.stderr


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
