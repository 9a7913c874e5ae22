"""The settings of a selection in the real program: what is followed, and where it begins, also in the next run."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.processes import Processes

pytestmark = pytest.mark.nats


def test_a_run_goes_on_where_one_before_began_at_the_end_and_shipped_nothing(
    logs_url: str, processes: Processes, tmp_path: Path, read_back: Callable[[str], bytes]
) -> None:
    def ship_once(number: int) -> None:
        options = ["--server", logs_url, "--host", "web01"]
        options += ["--file", tmp_path / "logs/**/*.log", "--exclude", tmp_path / "logs/debug.log"]
        options += ["--from", "end", "--ignore-older", "1d", "--once"]
        command = [sys.executable, "-m", "shipper", *map(str, options)]
        process = processes.start(f"once-{number}", command, folder=Path(__file__).parents[2])
        assert process.popen.wait(90) == 0

    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("app.log", "debug.log"):
        (logs / name).write_bytes(b"old\nhalf")

    ship_once(1)
    for name in ("app.log", "debug.log"):
        with (logs / name).open("ab") as file:
            file.write(b" and half\n")
    ship_once(2)
    ship_once(3)

    assert read_back(logs_url) == b"half and half\n"
