"""`logbroker run` as operators meet it: real signals, real ports, a real nats-server."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.answer import Rejected
from broker.client.connection import Connection
from tests.broker.conftest import ask
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def fill(url: str, messages: int, size: int = 1000) -> int:
    """Publish to the stream until it holds `messages` more or refuses; return how many it took."""

    async def publish() -> int:
        connection = Connection([url], "test")
        try:
            for number in range(messages):
                try:
                    await connection.ask("logs.p0.web01", b"x" * size)
                except Rejected:
                    return number
            return messages
        finally:
            await connection.close()

    return asyncio.run(publish())


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


def test_a_second_broker_on_the_same_store_is_refused_in_one_line(
    start_broker: Any, logbroker: Callable[..., Any]
) -> None:
    broker = start_broker()
    broker.wait_ready()

    second = logbroker("run", "--store-dir", broker.store, "--listen", "127.0.0.1:0", "--http", "")

    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert "another broker has the store" in second.stderr
    assert (broker.store / "broker.json").exists()


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


def test_lines_and_limits_survive_a_kill_of_everything(start_broker: Any) -> None:
    broker = start_broker("--partitions", "3")
    url = broker.wait_ready()["server"]
    assert fill(url, 50) == 50
    created = ask(url, "STREAM.INFO.LOGS")["created"]
    broker.end(signal.SIGKILL)

    again = start_broker("--partitions", "3")
    info = ask(again.wait_ready()["server"], "STREAM.INFO.LOGS")

    assert info["state"]["messages"] == 50
    assert info["created"] == created
    assert "50 messages" in again.said
