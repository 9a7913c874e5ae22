"""What may have been lost while no shipper ran is in its log, `check`, `status` and a metric."""

import os
from pathlib import Path

import pytest

from tests.pages import page, samples
from tests.shipper.conftest import read_lines
from tests.shipper.logs import Ship, append, lines, rotate, run, wait_for_log

pytestmark = pytest.mark.nats


def test_a_file_that_went_away_while_no_shipper_ran_is_reported_wherever_one_looks(
    logs_url: str, ship: Ship, own_host: str, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    options = ("--file", log, "--server", logs_url)
    append(log, lines(0, 100))
    once = ship(logs_url, "--once", "--file", log, host=own_host)
    assert once.wait(40) == 0
    assert "!! " not in run("check", "--host", own_host, *options).stdout
    append(log, lines(100, 110))
    log.rename(tmp_path / "moved")
    log.with_name("app.log.1.lz4").write_bytes(b"packed")
    append(log, lines(200, 210))
    (tmp_path / "moved").unlink()

    checked = run("check", "--host", own_host, *options)
    process = ship(logs_url, "--file", log, "--listen", "127.0.0.1:0", host=own_host)
    wait_for_log(process, f"{log}: was deleted, moved or truncated while no shipper ran")
    wait_for_log(process, "listening on http://127.0.0.1:")
    told = samples(page(process, "/metrics")[1])
    status = run("status", "--host", own_host, *options[2:])

    assert checked.returncode == 0
    for said in (checked.stdout, status.stdout):
        assert f"{log}: was deleted, moved or truncated" in said
        assert f"{log}.1.lz4: is left unread (6 B)" in said
    assert told["logshipper_unread_paths"] == 2
    assert told["logshipper_lost_bytes_total|unread"] == 6
    assert "!! " in run("check", "--host", own_host, *options).stdout
    process.stop(10)
    assert "!! " not in run("check", "--host", own_host, *options).stdout


def test_two_rotations_while_no_shipper_ran_lose_nothing_though_a_time_was_set_back(
    logs_url: str, ship: Ship, own_host: str, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    options = ("--once", "--file", log)
    append(log, lines(0, 100))
    assert ship(logs_url, *options, host=own_host).wait(40) == 0
    append(log, lines(100, 200))
    for first in (200, 300):
        rotate(log)
        append(log, lines(first, first + 100))
    hours_ago = log.stat().st_mtime - 7200
    os.utime(tmp_path / "app.log.1", (hours_ago, hours_ago))

    again = ship(logs_url, *options, host=own_host)

    assert again.wait(40) == 0
    assert read_lines(logs_url) == lines(0, 400)
    assert "not found again" not in again.said()
