"""`logbroker run` as operators and a service manager meet it: signals, ports, reloads."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.broker.conftest import Broker, StartBroker, ask, logbroker
from tests.manager import Manager
from tests.support.processes import Processes, installed, proc, stat_of, wait_until

pytestmark = pytest.mark.nats


def is_alive(pid: int) -> bool:
    return stat_of(pid)[:1] not in ([], ["Z"])


@pytest.mark.parametrize(
    ("number", "is_hung"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)],
    ids=["SIGTERM", "SIGINT", "SIGTERM, hung"],
)
def test_a_signal_ends_the_broker_and_its_server_within_ten_seconds(
    start_broker: StartBroker, number: int, is_hung: bool
) -> None:
    broker = start_broker()
    child = broker.ready()["nats_server_pid"]
    if is_hung:
        os.kill(child, signal.SIGSTOP)

    broker.send(number)

    assert broker.wait(15) == 0
    assert not is_alive(child)
    assert not (broker.store / "broker.json").exists()


def test_a_broker_killed_at_any_moment_leaves_no_server_behind(start_broker: StartBroker) -> None:
    for delay in (0.15, 0.25, 0.3, 0.35, 0.4, 0.5, None):
        broker = start_broker()
        broker.ready() if delay is None else time.sleep(delay)
        broker.kill()

    def is_gone() -> bool:
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return not [pid for pid in pids if str(broker.store) in proc(pid, "cmdline")]

    wait_until("no server is left", is_gone, 20)


def test_a_server_that_dies_ends_the_broker_with_one_line(start_broker: StartBroker) -> None:
    broker = start_broker()
    child = broker.ready()["nats_server_pid"]
    before = len(broker.read_log().splitlines())

    os.kill(child, signal.SIGKILL)

    assert broker.wait(20) == 1
    assert broker.read_log().splitlines()[before:] == [
        "logbroker: nats-server ended (killed by SIGKILL)"
    ]


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_in_use_is_named_in_one_line(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        rest = {"--listen": "127.0.0.1:0", "--http": ""} | {option: address}
        ended = logbroker(
            "run", "--store-dir", tmp_path / "s", *[x for p in rest.items() for x in p]
        )

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"cannot listen on {address}: address already in use" in ended.stderr


def test_the_store_is_systemds_state_directory_unless_an_option_names_one(
    processes: Processes, tmp_path: Path
) -> None:
    made, named = tmp_path / "made", tmp_path / "named"
    made.mkdir()
    environment = {"STATE_DIRECTORY": f"{made}:{tmp_path}/more"}
    words = [installed("logbroker"), "run", "--listen", "127.0.0.1:0", "--http", ""]

    for options, store in (((), made), (("--store-dir", named), named)):
        broker = processes.start(f"broker-{store.name}", [*words, *options], environment)
        wait_until("is ready", (store / "broker.json").exists, 120, [broker])
        assert broker.stop(60) == 0

    assert not (tmp_path / "more").exists()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.toml"
    path.touch()
    return path


@pytest.fixture
def broker(start_broker: StartBroker, manager: Manager, config: Path) -> Broker:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "3000000"}
    broker = start_broker("--site", "here", "--config", config, environment=environment)
    wait_for_state(broker, manager, "READY=1")
    return broker


def wait_for_state(broker: Broker, manager: Manager, state: str) -> None:
    wait_until(f"{state} is sent", lambda: manager.has_received(state), 40, [broker])


def test_a_service_manager_gets_the_state_until_the_end(broker: Broker, manager: Manager) -> None:
    wait_for_state(broker, manager, "STATUS=serving")
    wait_for_state(broker, manager, "WATCHDOG=1")

    assert broker.stop(20) == 0
    assert manager.has_received("STOPPING=1")


def test_a_reload_applies_settings_names_others_and_survives_errors(
    broker: Broker, manager: Manager, config: Path
) -> None:
    def max_age(*lines: str) -> int:
        """Have the settings read again, and return the age that is in force in seconds."""
        config.write_text("\n".join(lines), "utf-8")
        reload(broker, manager)
        info = ask(broker.ready()["server"], "STREAM.INFO.LOGS")
        return int(info["config"]["max_age"]) // 10**9

    assert max_age('max_age = "12h"', 'memory = "1GB"') == 12 * 3600
    assert manager.has_received("RELOADING=1")
    assert "changed: max_age; needs a restart: memory" in broker.read_log()

    assert max_age('max_age = "never"') == 12 * 3600
    assert "keeping current settings: " in broker.read_log()
    assert "broker.toml: max_age" in broker.read_log()

    assert max_age("[nats]", "max_connection = 79") == 12 * 3600  # the real one has an s
    assert "max_connection" in broker.read_log()

    assert max_age('max_age = "6h"', "[nats]", "max_connections = 79") == 6 * 3600
    assert "Traceback" not in broker.read_log()


@pytest.mark.parametrize(
    "change",
    ["streams = 2", "partitions = 7", "replicas = 3", 'mirror = "away"'],
    ids=lambda change: change.split()[0],
)
def test_a_refused_reload_puts_nothing_in_force(
    broker: Broker, manager: Manager, config: Path, change: str
) -> None:
    conf, url = broker.store / "nats-server.conf", broker.ready()["server"]
    ask(url, ("logs.p0.web01", b"a line\n"))
    before = conf.read_text("utf-8"), ask(url, "STREAM.INFO.LOGS")["config"]

    for times in (1, 2):
        config.write_text(f"{change}\n[nats]\nmax_connections = 79\n", "utf-8")
        reload(broker, manager)
        assert broker.read_log().count("keeping current settings: ") == times
        assert (conf.read_text("utf-8"), ask(url, "STREAM.INFO.LOGS")["config"]) == before

    options = "--yes", "--store-dir", broker.store, "--output", f"{config.parent}/"
    added = logbroker("credentials", "add", "admin", "ops", *options)
    assert added.returncode == 0, added.stderr
    assert '"max_connections": 79' not in conf.read_text("utf-8")


def reload(broker: Broker, manager: Manager) -> None:
    manager.forget()
    broker.hang_up()
    wait_for_state(broker, manager, "READY=1")


@pytest.mark.long  # a server is given up after 50 s
def test_a_server_that_does_not_answer_is_restarted(broker: Broker) -> None:
    child = broker.ready()["nats_server_pid"]
    os.kill(child, signal.SIGSTOP)

    wait_until("is ready again", lambda: broker.read_log().count("ready: ") == 2, 120)

    assert "restarting nats-server: no answer for 50 s" in broker.read_log()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
