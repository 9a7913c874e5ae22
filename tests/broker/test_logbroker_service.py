"""`logbroker run` under a service manager: what that is told, and settings read again while clients stay."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import LOGBROKER, ask
from tests.manager import Manager
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


class Supervised:
    """A broker with a settings file, watched over."""

    def __init__(self, folder: Path, manager: Manager) -> None:
        self.config, self.manager, self.store = folder / "broker.toml", manager, folder / "store"
        self.log = folder / "log"
        self.write()
        with self.log.open("wb") as sink:
            self.popen = subprocess.Popen(
                [*LOGBROKER, "run", "--config", self.config],
                stderr=sink,
                env={**os.environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "3000000"},
            )

    def write(self, *lines: str) -> None:
        settings = (
            f"store_dir = {json.dumps(str(self.store))}",
            'http = ""',
            "max_store = 100000000",
        )
        listen = (
            () if any(line.startswith("listen") for line in lines) else ('listen = "127.0.0.1:0"',)
        )
        self.config.write_text("\n".join([*settings, *listen, *lines]) + "\n", "utf-8")

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8")

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 40
        while not holds():
            assert self.popen.poll() is None, self.said
            assert time.monotonic() < deadline, (self.said, self.manager.heard)
            time.sleep(0.02)

    def hang_up(self) -> None:
        """Have it read its settings again, and wait until that is done."""
        self.manager.forget()
        self.popen.send_signal(signal.SIGHUP)
        self.until(lambda: self.manager.has_heard("READY=1"))

    def is_not_fed(self) -> bool:
        self.manager.forget()
        time.sleep(2)  # more than half of the watchdog's patience
        return not self.manager.has_heard("WATCHDOG=1")

    def max_age(self) -> Any:
        url = json.loads((self.store / "broker.json").read_text("utf-8"))["server"]
        return ask(url, "STREAM.INFO.LOGS")["config"]["max_age"] // 10**9


def test_the_folder_that_systemd_made_for_it_is_its_store_unless_it_is_told_another(
    tmp_path: Path,
) -> None:
    made, told = tmp_path / "made", tmp_path / "told"
    made.mkdir()
    environment = {**os.environ, "STATE_DIRECTORY": f"{made}:{tmp_path}/more"}

    for options, store in (((), made), (("--store-dir", told), told)):
        running = [*LOGBROKER, "run", "--listen", "127.0.0.1:0", "--http", "", *options]
        with subprocess.Popen(running, env=environment) as popen:
            wait_until("is ready", (store / "broker.json").exists, 120)
            popen.terminate()
            assert popen.wait(60) == 0

    assert not (tmp_path / "more").exists()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Supervised]:
    manager = Manager(tmp_path)
    broker = Supervised(tmp_path, manager)
    broker.until(lambda: manager.has_heard("READY=1"))
    yield broker
    broker.popen.kill()
    broker.popen.wait()
    manager.close()


def test_a_service_manager_is_told_how_it_goes_from_the_start_to_the_end(
    broker: Supervised,
) -> None:
    assert broker.manager.has_heard("STATUS=serving")
    broker.until(lambda: broker.manager.has_heard("WATCHDOG=1"))

    child = json.loads((broker.store / "broker.json").read_text("utf-8"))["nats_server_pid"]
    os.kill(child, signal.SIGSTOP)  # a server that answers nobody
    broker.until(broker.is_not_fed)

    os.kill(child, signal.SIGCONT)
    broker.until(lambda: broker.manager.has_heard("WATCHDOG=1"))
    broker.popen.send_signal(signal.SIGTERM)

    assert broker.popen.wait(10) == 0
    assert broker.manager.has_heard("STOPPING=1")


def test_settings_read_again_count_at_once_or_are_named_or_leave_the_old_ones(
    broker: Supervised,
) -> None:
    broker.write('max_age = "12h"', 'listen = "127.0.0.1:1"')
    broker.hang_up()
    assert broker.manager.has_heard("RELOADING=1")
    assert broker.max_age() == 12 * 3600
    assert "changed: max_age; needs a restart: listen" in broker.said

    broker.write('max_age = "never"')
    broker.hang_up()
    assert "keeping current settings: " in broker.said
    assert "broker.toml: max_age" in broker.said
    assert broker.max_age() == 12 * 3600

    broker.write('max_age = "6h"')
    broker.hang_up()
    assert broker.max_age() == 6 * 3600
    assert "Traceback" not in broker.said


@pytest.mark.long  # a server is given up after 50 s
def test_a_server_that_answers_nobody_any_more_is_restarted(broker: Supervised) -> None:
    child = json.loads((broker.store / "broker.json").read_text("utf-8"))["nats_server_pid"]
    os.kill(child, signal.SIGSTOP)

    wait_until("is ready again", lambda: broker.said.count("ready: ") == 2, 120)

    assert "restarting nats-server: no answer for 50 s" in broker.said
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
