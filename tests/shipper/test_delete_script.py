"""The script of a page that deletes shipped files, as pasted, beside a running agent."""

import gzip
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.commands import blocks
from tests.shipper.conftest import live_report
from tests.shipper.logs import ROOT, Ship, append, lines, rotate, wait_for_log
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

HOURS = 2 * 3600


def age(path: Path) -> None:
    """Have a file seem to be written two hours ago."""
    then = time.time() - HOURS  # noqa: TID251 - the time of files
    os.utime(path, (then, then))


def test_the_script_deletes_only_files_that_are_shipped_and_not_written(
    logs_url: str, ship: Ship, tmp_path: Path, own_host: str
) -> None:
    (script := tmp_path / "delete").write_text(
        blocks((ROOT / "docs/operations.md").read_text("utf-8"), "python")[0], "utf-8"
    )
    log, archive = tmp_path / "app.log", tmp_path / "old.gz"
    archive.write_bytes(gzip.compress(b"archived\n"))
    options = ("--file", log, "--file", tmp_path / "*.gz", "--grace", "1h")
    agent = ship(logs_url, *options, host=own_host)

    def states() -> dict[str, tuple[str, int | None]]:
        return {
            Path(one.path).name: (one.state, one.behind_bytes) for one in live_report(agent).files
        }

    wait_for_log(agent, " ships on ")
    for number, end in enumerate((b"", b"", b"unfinished", b"")):
        if number:
            rotate(log)
        append(log, lines(number, number + 1) + end)
        wait_until("it is followed", lambda n=number: len(states()) == n + 2, 40, [agent])
    size, unfinished = len(lines(0, 1)), len(b"unfinished")
    expected = {"app.log": ("following", size), "app.log.1": ("unfinished line", unfinished)}
    done = dict.fromkeys(("app.log.2", "app.log.3", "old.gz"), ("rotated", 0))
    wait_until("all is shipped", lambda: states() == expected | done, 40, [agent])
    for name in ("app.log", "app.log.1", "app.log.3", "old.gz"):
        age(tmp_path / name)

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LOGSHIPPER_HOST": own_host}
    subprocess.run([sys.executable, script], check=True, env=environment)

    left = {name for name in (*expected, *done) if (tmp_path / name).exists()}
    assert left == {"app.log", "app.log.1", "app.log.2"}
    assert agent.stop(12) == 0
