"""Metrics, health and status of the real program, and when it is unhealthy."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shipper.sources.notices import Notice, NoticeKind
from shipper.status.metrics import FILES_SHOWN, make_pages
from shipper.status.report import AgentMeter, FileStatus, HostReport
from tests.pages import page, samples
from tests.shipper.conftest import live_report
from tests.shipper.logs import Ship, append, wait_for_log
from tests.support.processes import wait_until


@pytest.mark.nats
def test_metrics_health_and_status_show_work_and_waiting(
    own_broker: Any, ship: Ship, tmp_path: Path
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"a line\n" * 1000)
    process = ship(own_broker.url, "--file", log, "--listen", "127.0.0.1:0")
    wait_for_log(process, "listening on http://127.0.0.1:")

    def has(name: str, value: float) -> Callable[[], bool]:
        return lambda: samples(page(process, "/metrics")[1])[f"logshipper_{name}"] == value

    wait_until("all is shipped", has("lines_total", 1000), 40, [process])
    wait_until("is well", lambda: page(process, "/healthz") == (200, "ok\n"), 30, [process])
    metrics = samples(page(process, "/metrics")[1])
    own_broker.stop()
    append(log, b"one more\n")
    wait_until("is not well", lambda: page(process, "/healthz")[0] == 503, 40, [process])
    wait_until("shows bytes behind", has("behind_bytes", 9), 30, [process])
    wait_until("by file as well", has(f"file_behind_bytes|{log}", 9), 30, [process])
    status = live_report(process)

    assert metrics["logshipper_bytes_total"] == 7000
    assert 0 < metrics["logshipper_sent_bytes_total"] < 7000
    assert metrics["logshipper_rounds_total"] == metrics["logshipper_ack_latency_seconds_count"] > 0
    assert metrics["logshipper_behind_bytes"] == metrics["logshipper_waiting"] == 0
    assert metrics["logshipper_followed_files"] == metrics["logshipper_open_files"] == 1
    assert metrics["logshipper_lost_bytes_total|deleted"] == 0
    assert metrics["logshipper_last_ack_timestamp_seconds"] > 1e9
    assert "process_cpu_seconds_total" in metrics
    assert "waiting for the broker" in page(process, "/healthz")[1]
    (file,) = status.files
    assert (status.running, file.state) == (True, "following")
    assert (file.size_bytes, file.position_bytes, file.behind_bytes) == (7009, 7000, 9)
    assert status.waiting_for != ""
    assert 0 < (file.oldest_unshipped_seconds or 0) < 60
    assert process.stop(10) == 0


def behind_by(path: str, size: int) -> FileStatus:
    return FileStatus(path=path, state="following", size_bytes=size, position_bytes=0)


async def test_the_files_furthest_behind_have_a_series_each() -> None:
    meter = AgentMeter(int)
    meter.count_notices([Notice(NoticeKind.GONE, "/a", "is gone", 5)])
    meter.count_notices([Notice(NoticeKind.VACUUMED, "journal", "entries are lost", 3)])
    # two files at one path with a newline in it
    paths = [f"/log/{number}.log" for number in range(10_000)] + ["/log/\n\udcff"] * 2
    crowd = HostReport(host="web01", running=True, files=tuple(map(behind_by, paths, count())))

    metrics = samples(make_pages(lambda: crowd, meter)["/metrics"]().body.decode())

    behind = {name: value for name, value in metrics.items() if "file_behind_bytes" in name}
    assert len(behind) == FILES_SHOWN
    assert behind["logshipper_file_behind_bytes|/log/\\n\\udcff"] == 20_001
    assert behind["logshipper_file_behind_bytes|/log/9999.log"] == 9999
    assert metrics["logshipper_followed_files"] == 10_002
    assert metrics["logshipper_lost_bytes_total|deleted"] == 5
    assert metrics["logshipper_lost_entries_total"] == 3


async def test_the_newest_reports_of_unread_files_are_kept_and_the_others_are_counted() -> None:
    meter = AgentMeter(int)
    for number in range(150):
        meter.count_notices([Notice(NoticeKind.UNREAD, f"/log/{number % 140}", "is not read")])

    assert len(meter.unread) == 1 + 100
    assert meter.unread[0].startswith("50 older reports of files")
    assert meter.unread[-1] == "/log/9: is not read"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({}, "", id="slow"),
        pytest.param({"waiting_seconds": 61}, "acknowledged", id="nothing acknowledged"),
        pytest.param({"waiting_for": "the broker is full"}, "full", id="full"),
        pytest.param({"has_scanned": False}, "starting", id="starting"),
        pytest.param({"reading_seconds": 61}, "cannot be read", id="hung"),
        pytest.param({"obstacle": "disk full"}, "disk full", id="a full disk"),
    ],
)
def test_an_agent_is_unhealthy_for_a_reason(change: dict[str, Any], reason: str) -> None:
    slow: dict[str, Any] = {"waiting_seconds": 59, "reading_seconds": 59}
    unhealthy = HostReport(host="web01", running=True, files=(), **slow | change).unhealthy

    assert reason in unhealthy
    assert bool(reason) == bool(unhealthy)
