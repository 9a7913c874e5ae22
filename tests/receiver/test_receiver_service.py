"""The receiver under a service manager, watched over and told to change, as a program with a real Spark."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.manager import Manager
from tests.receiver.partition import Partition
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nats]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def status(url: str, output: Path) -> dict[str, object]:
    words = [sys.executable, "-m", "receiver", "status", "--json", "--server", url]
    shown = subprocess.run(
        [*words, "--output", str(output)], capture_output=True, text=True, check=True, timeout=180
    )
    return dict(json.loads(shown.stdout))


def test_a_service_manager_a_scraper_and_a_person_hear_how_it_goes(
    logs_url: str, processes: Processes, tmp_path: Path
) -> None:
    manager, output = Manager(tmp_path), tmp_path / "out"
    config = tmp_path / "receiver.toml"
    config.write_text('keep = 3\nlog_level = "info"\n')
    partition = Partition(logs_url, tmp_path)
    partition.lines("web01", b"one\n", b"two\n")
    receiver: Process = processes.start(
        "receiver",
        [
            *(sys.executable, "-m", "receiver", "--config", str(config), "--partition", "0"),
            *("--server", logs_url, "--output", str(output), "--listen", "127.0.0.1:0"),
            *("--compress", "gzip"),
        ],
        {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"},
    )

    def words() -> str:
        return receiver.log.read_text()

    wait_until("is ready", lambda: manager.has_heard("READY=1"), 150, [receiver])
    found = re.search(r"listening on (http://\S+)", words())
    assert found
    wait_until(
        "has counted", lambda: 'lines_total{partition="0"} 2.0' in get(f"{found[1]}/metrics"), 90
    )
    partition.lines("web01", b"three\n")
    wait_until("tells of itself", lambda: manager.has_heard("STATUS=1 partition, "), 90)
    caught_up = lambda: (output / "web01.log").read_bytes().count(b"\n") == 3  # noqa: E731
    wait_until("has received all", caught_up, 150, [receiver])
    shown = status(logs_url, output)["partitions"][0]  # type: ignore[index]
    config.write_text('keep = 4\nrotate_every = "1h"\n')
    os.kill(receiver.pid, signal.SIGHUP)
    # at once: what nobody hears for long is dropped
    wait_until("hears of that", lambda: manager.has_heard("RELOADING=1"), 60, [receiver])
    wait_until("reads again", lambda: "settings reloaded" in words(), 60, [receiver])
    config.write_text("keep = -1\n")
    os.kill(receiver.pid, signal.SIGHUP)
    wait_until("keeps the old ones", lambda: "keeping current settings" in words(), 60, [receiver])
    for pid in receiver.tree():  # as `killall` does: none of them ends by it
        os.kill(pid, signal.SIGUSR1)
    closed = output / "web01.log.000001.gz"
    wait_until("closes and compresses its files", closed.exists, 60, [receiver])

    assert get(f"{found[1]}/healthz") == "ok\n"
    assert gzip.decompress(closed.read_bytes()) == b"one\ntwo\nthree\n"
    assert shown["running"] is True
    assert shown["blocked"] is None
    assert shown["lines_per_second"] >= 0
    assert "changed: keep; needs a restart: rotate_every" in words().replace("-", "_")
    assert manager.has_heard("WATCHDOG=1")
    assert receiver.stop(12) == 0
    assert status(logs_url, output)["partitions"][0]["running"] is False  # type: ignore[index]
    assert manager.has_heard("STOPPING=1")
    assert "Traceback" not in words()
    manager.close()


def test_a_hang_up_while_it_still_starts_waits_until_settings_can_be_read_again(
    processes: Processes, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    manager = Manager(tmp_path)
    receiver = processes.start(
        "receiver",
        [
            *(sys.executable, "-m", "receiver", "--partition", "0", "--output", tmp_path / "out"),
            *("--server", f"nats://127.0.0.1:{free_port()}"),
        ],
        {"NOTIFY_SOCKET": manager.address},
    )
    wait_until("is about to load Spark", lambda: _ignores_usr1(receiver.pid), 60, [receiver])

    os.kill(receiver.pid, signal.SIGHUP)

    wait_until("has read them", lambda: manager.has_heard("RELOADING=1"), 90, [receiver])
    assert receiver.stop(12) == 0
    manager.close()


def _ignores_usr1(pid: int) -> bool:
    found = re.search(r"^SigIgn:\t(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> signal.SIGUSR1 - 1 & 1)
