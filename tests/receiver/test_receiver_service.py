"""logreceiver under a service manager, as a program with a real Spark."""

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from receiver.cli import logreceiver
from tests.manager import Manager
from tests.pages import page
from tests.receiver.scene import Scene
from tests.support.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nats]


def status(scene: Scene) -> dict[str, Any]:
    words = ["status", "--json", "--server", scene.url, "--output", str(scene.output)]
    return dict(json.loads(CliRunner().invoke(logreceiver, words).output)["partitions"][0])


def test_a_receiver_reports_to_its_service_manager_and_reloads(
    scene: Scene, manager: Manager, tmp_path: Path
) -> None:
    config = tmp_path / "receiver.toml"
    config.write_text('keep = 3\nlog_level = "info"\n')
    partition = scene.partition(0)
    partition.lines("web01", b"one\n", b"two\n")
    receiver = scene.receiver(
        *("receiver", "--config", str(config), "--listen", "127.0.0.1:0", "--compress", "gzip"),
        environment={"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"},
    )
    words = receiver.read_log
    wait_until("is ready", lambda: manager.has_received("READY=1"), 150, [receiver])
    counted = lambda: 'lines_total{partition="0"} 2.0' in page(receiver, "/metrics")[1]  # noqa: E731
    wait_until("has counted", counted, 90)
    partition.lines("web01", b"three\n")
    wait_until("reports its status", lambda: manager.has_received("STATUS=2 partitions, "), 90)
    caught_up = lambda: partition.read("web01").count(b"\n") == 3  # noqa: E731
    wait_until("has received all", caught_up, 150, [receiver])
    shown = status(scene)
    config.write_text('keep = 4\nrotate_every = "1h"\n')
    os.kill(receiver.pid, signal.SIGHUP)
    wait_until("reports the reload", lambda: manager.has_received("RELOADING=1"), 60, [receiver])
    wait_until("reads again", lambda: "settings reloaded" in words(), 60, [receiver])
    config.write_text("keep = -1\n")
    os.kill(receiver.pid, signal.SIGHUP)
    wait_until("keeps the old ones", lambda: "keeping current settings" in words(), 60, [receiver])
    for pid in receiver.tree():  # as `killall` does: none of them ends by it
        os.kill(pid, signal.SIGUSR1)
    closed = scene.output / "web01.log.000001.gz"
    wait_until("closes and compresses its files", closed.exists, 60, [receiver])

    assert page(receiver, "/healthz") == (200, "ok\n")
    assert gzip.decompress(closed.read_bytes()) == b"one\ntwo\nthree\n"
    assert shown["running"] is True
    assert shown["blocked"] is None
    assert shown["lines_per_second"] >= 0
    assert "changed: keep; needs a restart: rotate_every" in words().replace("-", "_")
    assert manager.has_received("WATCHDOG=1")
    assert receiver.stop(12) == 0
    assert status(scene)["running"] is False
    assert manager.has_received("STOPPING=1")
    assert "Traceback" not in words()
