"""`logshipper check`: what the agent would run into, said before it does, and nothing changed by it."""

import os
from pathlib import Path

import pytest

from tests.shipper.conftest import read_lines
from tests.shipper.logs import run


@pytest.mark.nats
def test_all_that_is_well_is_said_and_nothing_is_changed(tmp_path: Path, logs_url: str) -> None:
    (tmp_path / "a.log").write_text("line\n")

    done = run("check", "--host", "web01", "--file", tmp_path / "a.log", "--server", logs_url)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok  {tmp_path}/a.log: 5 bytes" in done.stdout
    assert " of 2 partitions" in done.stdout
    assert "this user may publish to logs.p" in done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "a.log"]
    assert read_lines(logs_url) == b""


def test_files_are_left_out_for_a_reason_that_is_named_beside_all_else_that_is_wrong(
    tmp_path: Path,
) -> None:
    for name in ("a.log", "old.log", "secret.log"):
        (tmp_path / name).write_text("line\n")
    os.utime(tmp_path / "old.log", (1, 1))
    os.mkfifo(tmp_path / "pipe.log")
    options = ("--exclude", tmp_path / "secret*", "--ignore-older", "1h")
    files = ("--file", tmp_path / "*.log", tmp_path / "missing")

    done = run("check", "--host", "web01", *files, *options, "--server", "nats://127.0.0.1:1")

    found = {line[4:].partition(":")[0]: line for line in done.stdout.splitlines()}
    assert found.pop(f"{tmp_path}/a.log") == f"ok  {tmp_path}/a.log: 5 bytes"
    assert found.pop(f"{tmp_path}/secret.log").endswith("secret.log: left out by --exclude")
    assert found.pop(f"{tmp_path}/missing") == f"BAD {tmp_path}/missing: is not there yet"
    assert "--ignore-older" in found.pop(f"{tmp_path}/old.log")
    assert found.pop(f"{tmp_path}/pipe.log").startswith("-- ")
    assert [line[:4] for line in found.values()] == ["BAD "]  # the broker
    assert (done.returncode, done.stderr) == (1, "")
