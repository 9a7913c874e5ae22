"""`logshipper check`: what the agent would run into, said before it does, and nothing changed by it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def check(tmp_path: Path) -> Call:
    def run(*options: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*(sys.executable, "-m", "shipper", "check", "--host", "web01"), *map(str, options)],
            capture_output=True,
            text=True,
            timeout=180,
            cwd=ROOT,
            check=False,
        )

    return run


@pytest.mark.nats
def test_all_that_is_well_is_said_and_nothing_is_changed(
    check: Call, tmp_path: Path, logs_url: str, read_back: Callable[[str], bytes]
) -> None:
    (tmp_path / "a.log").write_text("line\n")

    done = check("--file", tmp_path / "a.log", "--server", logs_url)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok  {tmp_path}/a.log: 5 bytes" in done.stdout
    assert " of 2 partitions" in done.stdout
    assert "this user may publish to logs.p" in done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "a.log"]
    assert read_back(logs_url) == b""


def test_files_are_left_out_for_a_reason_that_is_named_beside_all_else_that_is_wrong(
    check: Call, tmp_path: Path
) -> None:
    for name in ("a.log", "old.log", "secret.log"):
        (tmp_path / name).write_text("line\n")
    os.utime(tmp_path / "old.log", (1, 1))
    os.mkfifo(tmp_path / "pipe.log")
    options = ("--exclude", tmp_path / "secret*", "--ignore-older", "1h")
    files = ("--file", tmp_path / "*.log", tmp_path / "missing")

    done = check(*files, *options, "--server", "nats://127.0.0.1:1")

    found = {line[4:].partition(":")[0]: line for line in done.stdout.splitlines()}
    assert found.pop(f"{tmp_path}/a.log") == f"ok  {tmp_path}/a.log: 5 bytes"
    assert found.pop(f"{tmp_path}/secret.log").endswith("secret.log: left out by --exclude")
    assert found.pop(f"{tmp_path}/missing") == f"BAD {tmp_path}/missing: is not there yet"
    assert "--ignore-older" in found.pop(f"{tmp_path}/old.log")
    assert found.pop(f"{tmp_path}/pipe.log").startswith("-- ")
    assert [line[:4] for line in found.values()] == ["BAD "]  # the broker
    assert (done.returncode, done.stderr) == (1, "")
