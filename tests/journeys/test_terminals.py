"""The programs on a terminal: times in the log, how far long work is, and what is left at the end.

A slow line makes any amount of work long.
"""

import re
from pathlib import Path

import pytest

from tests.journeys.test_slow_lines import noise
from tests.support.processes import installed
from tests.support.slow_line import slow_line
from tests.support.suite import Suite
from tests.support.terminal import run_on_terminal, shown_at_the_end

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.long]


def is_logged(text: str, written: str) -> bool:
    """Whether a line with a time and a text stays on a terminal."""
    line = re.compile(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {re.escape(text)}")
    return any(map(line.fullmatch, shown_at_the_end(written)))


def test_long_work_is_shown_on_a_terminal_and_ends_with_a_total(
    suite: Suite, tmp_path: Path
) -> None:
    suite.partitions, backup = 1, tmp_path / "backup"
    suite.start_broker()
    lines = noise(20_000_000)
    (log := tmp_path / "app.log").write_bytes(lines)
    total = f"{lines.count(10):,} lines, 19.1 MiB"

    with slow_line(suite.url, 7e6) as line:

        def run(program: str, *arguments: str | Path) -> str:
            """Return what a program, which ends well, writes to a terminal."""
            command = [installed(program), *arguments, "--server", line.url]
            code, written = run_on_terminal(command, 240)
            assert code == 0, written
            return written

        shipped = run("logshipper", "--host", "web01", "--file", log, "--once")
        everything = ("--partition", "all", "--output", suite.output)
        received = run("logreceiver", *everything, "--once")
        verified = run("logreceiver", "verify", "--output", suite.output)
        replayed = run(
            "logreceiver", "replay", "--since", "earliest", "--output", tmp_path / "again"
        )
        backed_up = run("logbroker", "backup", backup)
        restored = run("logbroker", "restore", backup, "--replace", "--yes")

    assert re.search(r"\x1b\[K1 file, [\d.]+ MiB unshipped, \d+s left\r", shipped), shipped
    assert is_logged(f"INFO agent: shipped {total}, of 1 file", shipped)
    assert re.search(r"\x1b\[K1 partition, [\d,]+ messages? behind, \S+ \S+/s", received), received
    done = f"INFO driver: received {total}; all is committed, nothing waits"
    assert is_logged(done, received)
    assert "behind" not in received.partition(done)[2]
    for label, written in (
        ("comparing", verified),
        ("replaying", replayed),
        ("backing up LOGS", backed_up),
        ("restoring LOGS", restored),
    ):
        assert re.search(rf"\x1b\[K{label}: \d+ %", written), written
        assert label not in "".join(shown_at_the_end(written))
