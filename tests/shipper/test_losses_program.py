"""Lines that may be lost while no shipper ran are in its log, `check`, `status` and a metric."""

from pathlib import Path

import pytest

from tests.pages import page, samples
from tests.shipper.logs import Ship, append, lines, run, wait_for_log

pytestmark = pytest.mark.nats


def test_a_file_lost_while_no_shipper_ran_is_in_log_check_status_and_metric(
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
    metrics = samples(page(process, "/metrics")[1])
    status = run("status", "--host", own_host, *options[2:])

    assert checked.returncode == 0
    for text in (checked.stdout, status.stdout):
        assert f"{log}: was deleted, moved or truncated" in text
        assert f"{log}.1.lz4: is left unread (6 B)" in text
    assert metrics["logshipper_unread_paths"] == 2
    assert metrics["logshipper_lost_bytes_total|unread"] == 6
    assert "!! " in run("check", "--host", own_host, *options).stdout
    process.stop(10)
    assert "!! " not in run("check", "--host", own_host, *options).stdout
