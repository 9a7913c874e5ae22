"""Reloaded settings of a running program: lines arrive once and in order."""

import sys
from pathlib import Path

import pytest

from tests.shipper.conftest import read_lines
from tests.shipper.logs import ROOT, append, wait_for_log
from tests.support.oracle import judge
from tests.support.processes import Process, Processes, wait_until

pytestmark = pytest.mark.nats


class Running:
    """A shipper with a file of settings, and the log files of a test."""

    def __init__(self, processes: Processes, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.written: dict[str, bytes] = {}
        self.config = folder / "shipper.toml"
        self.config.write_text(self.settings("a.log"))
        command = [sys.executable, "-m", "shipper", "--config", self.config, "--host", "web01"]
        self.process: Process = processes.start("shipper", command, folder=ROOT)
        wait_for_log(self.process, "ships on")

    def settings(self, *names: str) -> str:
        files = ", ".join(f'"{self.folder / name}"' for name in names)
        return f'server = ["{self.url}"]\nfile = [{files}]\n'

    def reload(self, content: str, text: str = "settings reloaded") -> str:
        """Reload other settings, and return the line of the log about them, which has this text."""

        def reports() -> list[str]:
            lines = self.process.log.read_text().splitlines()
            return [one for one in lines if "settings reloaded" in one or "reload failed" in one]

        self.config.write_text(content)
        before = len(reports())
        self.process.hang_up()
        wait_until("has reloaded", lambda: len(reports()) > before, 40, [self.process])
        assert text in reports()[-1], reports()[-1]
        return reports()[-1]

    def write(self, name: str, count: int = 100) -> None:
        before = self.written.get(name, b"")
        first = before.count(b"\n")
        data = b"".join(b"%s %06d\n" % (name.encode(), n) for n in range(first, first + count))
        self.written[name] = before + data
        append(self.folder / name, data)


@pytest.fixture
def running(processes: Processes, tmp_path: Path, logs_url: str) -> Running:
    return Running(processes, tmp_path, logs_url)


def test_reloaded_files_and_filters_lose_and_repeat_no_line(
    running: Running, logs_url: str
) -> None:
    both = running.settings("a.log", "b.log")

    def is_shipped(*names: str) -> bool:
        return len(read_lines(logs_url)) >= sum(len(running.written[name]) for name in names)

    running.write("a.log")
    running.write("b.log")
    wait_until("a is shipped", lambda: is_shipped("a.log"), 40, [running.process])
    running.reload(running.settings("b.log"))
    wait_until("b is shipped", lambda: is_shipped("a.log", "b.log"), 40, [running.process])
    running.write("a.log")
    running.write("b.log")
    running.reload(both)
    for _ in range(20):  # while lines are shipped
        running.write("a.log", 500)
        running.write("b.log", 500)
        running.reload(running.settings("b.log"))
        running.reload(both)

    wait_until("all is shipped", lambda: is_shipped("a.log", "b.log"), 40, [running.process])
    verdict = judge(list(running.written.values()), before := read_lines(logs_url))
    assert verdict.is_perfect, str(verdict)
    running.reload(running.settings("c.log") + 'exclude_lines = ["[02468]$"]\n')
    running.write("c.log", 10)
    kept = before + b"".join(b"c.log %06d\n" % n for n in (1, 3, 5, 7, 9))
    wait_until("odd ones come", lambda: read_lines(logs_url) == kept, 40, [running.process])
    assert running.process.stop(10) == 0


def test_a_reload_names_changes_needed_restarts_and_errors(running: Running) -> None:
    changed = (
        'file = ["b.log"]\nserver = ["nats://b2:4222"]\nlisten = "127.0.0.1:1"\n'
        'log_format = "json"\ngrace = "1s"\nround_size = "1MiB"\n'
    )
    for content, text in (
        ("file = [", "not valid TOML"),
        ('fiel = ["a"]\n', "fiel: not a setting"),
        ("#", "--file is missing, or --journal"),
        (changed, "changed: log_format, file, round_size, grace"),
        (changed, "nothing to change; needs a restart: server, listen"),
    ):
        report = running.reload(content, text)
        assert ("keeping current settings" in report) == (content != changed)
    assert '"level": "info"' in report
    assert running.process.stop(10) == 0
