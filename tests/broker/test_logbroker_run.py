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

from broker.client.connection import Connection, Rejected
from broker.inspect.ask import node_reports
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ask(url: str, name: str) -> dict[str, Any]:
    async def call() -> dict[str, Any]:
        connection = Connection([url], "test")
        try:
            return await connection.api(name)
        finally:
            await connection.close()

    return asyncio.run(call())


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


def test_a_broker_stopped_while_it_starts_exits_with_0_in_time(start_broker: Any) -> None:
    for delay in (0.4, 0.5, 0.6):
        broker = start_broker()
        time.sleep(delay)
        code = broker.end()
        assert code in {0, -signal.SIGTERM}, broker.said
        assert "Traceback" not in broker.said


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
    assert f"another broker (process {broker.popen.pid}) has the store" in second.stderr
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


def test_a_disk_with_less_room_than_before_is_no_reason_not_to_start(start_broker: Any) -> None:
    broker = start_broker("--max-store", "40MB")
    assert fill(broker.wait_ready()["server"], 20, size=500_000) == 20
    broker.end()

    smaller = start_broker("--max-store", "6MB", "--max-bytes", "50MB")
    info = ask(smaller.wait_ready()["server"], "STREAM.INFO.LOGS")

    assert info["state"]["messages"] == 20
    assert info["config"]["max_bytes"] < 6_000_000
    assert "WARNING broker.server.resolve: the streams get" in smaller.said


def test_a_reload_reaches_a_server_that_was_started_by_nohup_and_ends_nothing(
    start_broker: Any,
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    broker = start_broker("--log-level", "debug")
    signal.signal(signal.SIGHUP, before)
    broker.wait_ready()

    broker.popen.send_signal(signal.SIGHUP)

    deadline = time.monotonic() + 30
    while "Reloaded server configuration" not in broker.said:
        assert time.monotonic() < deadline, broker.said
        time.sleep(0.02)
    assert broker.end() == 0


def test_a_running_broker_answers_for_itself(start_broker: Any) -> None:
    ready = start_broker("--server-name", "b1").wait_ready()

    async def ask_for_it() -> Any:
        connection = Connection([ready["server"]], "test")
        try:
            return await node_reports(connection, 1)
        finally:
            await connection.close()

    (report,) = asyncio.run(ask_for_it())

    assert report.name == "b1"
    assert report.version == "2.15.1"
    assert report.nats_server_pid == ready["nats_server_pid"]
    assert report.frozen is report.credentials is None
    assert report.free > 0
    assert report.retention.keys() <= {"LOGS"}
