"""Files come and go in the settings of a running program: no line is lost, none comes twice, and none out of order."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.shipper.conftest import read_lines
from tests.shipper.logs import ROOT, append, says
from tests.support.oracle import judge
from tests.support.processes import Process, Processes, wait_until

pytestmark = pytest.mark.nats


class Running:
    """A shipper with a file of settings, and the log files of a test."""

    def __init__(self, processes: Processes, folder: Path, url: str) -> None:
        self.folder = folder
        self.written: dict[str, bytes] = {}
        self._url = url
        self._config = folder / "shipper.toml"
        self._name("a.log")
        self.process: Process = processes.start(
            "shipper",
            [
                *(sys.executable, "-m", "shipper", "--config", str(self._config)),
                *("--host", "web01"),
            ],
            folder=ROOT,
        )

    def _name(self, *names: str, more: str = "") -> None:
        files = ", ".join(f'"{self.folder / name}"' for name in names)
        self._config.write_text(f'server = ["{self._url}"]\nfile = [{files}]\n{more}')

    def reload(self, *names: str, more: str = "") -> None:
        self._name(*names, more=more)
        assert "settings reloaded" in self.reread()

    def reread(self, content: str = "") -> str:
        """Have it read its settings again, and return the line that it says of them."""
        if content:
            self._config.write_text(content)

        def told() -> list[str]:
            lines = self.process.log.read_text().splitlines()
            return [one for one in lines if "settings reloaded" in one or "reload failed" in one]

        before = len(told())
        os.kill(self.process.pid, signal.SIGHUP)
        wait_until("has read them again", lambda: len(told()) > before, 40, [self.process])
        return told()[-1]

    def write(self, name: str, count: int = 100) -> None:
        before = self.written.get(name, b"")
        first = before.count(b"\n")
        data = b"".join(b"%s %06d\n" % (name.encode(), n) for n in range(first, first + count))
        self.written[name] = before + data
        append(self.folder / name, data)


@pytest.fixture
def running(processes: Processes, tmp_path: Path, logs_url: str) -> Running:
    running = Running(processes, tmp_path, logs_url)
    says(running.process, "ships on")
    return running


def test_files_come_and_go_and_filters_come_without_a_line_lost_or_repeated(
    running: Running, logs_url: str
) -> None:
    def is_shipped(*names: str) -> bool:
        return len(read_lines(logs_url)) >= sum(len(running.written[name]) for name in names)

    running.write("a.log")
    running.write("b.log")
    wait_until("a is shipped", lambda: is_shipped("a.log"), 40, [running.process])
    running.reload("b.log")
    wait_until("b is shipped", lambda: is_shipped("a.log", "b.log"), 40, [running.process])
    running.write("a.log")
    running.write("b.log")
    running.reload("a.log", "b.log")
    for _ in range(20):  # under way, and in a hurry
        running.write("a.log", 500)
        running.write("b.log", 500)
        running.reload("b.log")
        running.reload("a.log", "b.log")

    wait_until("all is shipped", lambda: is_shipped("a.log", "b.log"), 40, [running.process])
    verdict = judge(list(running.written.values()), before := read_lines(logs_url))
    assert verdict.is_perfect, str(verdict)
    running.reload("c.log", more='exclude_lines = ["[02468]$"]\n')
    running.write("c.log", 10)
    kept = before + b"".join(b"c.log %06d\n" % n for n in (1, 3, 5, 7, 9))
    wait_until("odd ones come", lambda: read_lines(logs_url) == kept, 40, [running.process])
    assert running.process.stop(10) == 0


def test_what_a_reload_changes_what_it_cannot_and_what_it_refuses_are_named(
    running: Running,
) -> None:
    changed = (
        'file = ["b.log"]\nserver = ["nats://b2:4222"]\nlisten = "127.0.0.1:1"\n'
        'log_format = "json"\ngrace = "1s"\nround_size = "1MiB"\n'
    )
    for content, *words in (
        ("file = [", "keeping current settings", "not valid TOML"),
        ('fiel = ["a"]\n', "fiel: not a setting"),
        ("#", "--file is required"),
        (changed, "changed: log_format, file, round_size, grace", "restart: server, listen"),
        (changed, '"level": "info"', "nothing to change; needs a restart: server, listen"),
    ):
        told = running.reread(content)
        assert all(word in told for word in words), told
    assert running.process.stop(10) == 0
