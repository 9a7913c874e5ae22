"""What Prometheus, a load balancer and `logshipper status` are told by the real program, and when it is unhealthy."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nats_logship.client.connection import Connection
from shipper.publish.publisher import Publisher
from shipper.sources.notices import Notice, NoticeKind
from shipper.status.live import ask
from shipper.status.metrics import FILES_SHOWN, agent_metrics
from shipper.status.report import AgentMeter, AgentView, FileStatus, HostReport
from tests.pages import page, samples
from tests.shipper.logs import Ship, append, wait_for_log
from tests.support.processes import wait_until


@pytest.mark.nats
def test_the_program_tells_what_it_has_done_and_what_it_waits_for(
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
    told = samples(page(process, "/metrics")[1])
    own_broker.stop()
    append(log, b"one more\n")
    wait_until("is not well", lambda: page(process, "/healthz")[0] == 503, 40, [process])
    wait_until("tells what is behind", has("behind_bytes", 9), 30, [process])
    wait_until("by file as well", has(f"file_behind_bytes|{log}", 9), 30, [process])
    (status,) = [one for one in asyncio.run(ask("web01"))[0] if one.pid == process.pid]

    assert told["logshipper_bytes_total"] == 7000
    assert 0 < told["logshipper_sent_bytes_total"] < 7000
    assert told["logshipper_rounds_total"] == told["logshipper_ack_latency_seconds_count"] > 0
    assert told["logshipper_behind_bytes"] == told["logshipper_waiting"] == 0
    assert told["logshipper_followed_files"] == told["logshipper_open_files"] == 1
    assert told["logshipper_lost_bytes_total|deleted"] == 0
    assert told["logshipper_last_ack_timestamp_seconds"] > 1e9
    assert "process_cpu_seconds_total" in told
    assert "waiting for the broker" in page(process, "/healthz")[1]
    (file,) = status.files
    assert (status.running, file.state) == (True, "following")
    assert (file.size_bytes, file.position_bytes, file.behind_bytes) == (7009, 7000, 9)
    assert status.waiting_for != ""
    assert 0 < (file.oldest_unshipped_seconds or 0) < 60
    assert process.stop(10) == 0


def behind(path: str, size: int) -> FileStatus:
    return FileStatus(
        path=path, state="following", size_bytes=size, position_bytes=0, behind_bytes=size
    )


class Crowd(AgentView):
    """A view of many files, two of them at one path with a newline in it."""

    def report(self) -> HostReport:
        paths = [f"/log/{number}.log" for number in range(10_000)] + ["/log/\n\udcff"] * 2
        return HostReport(host="web01", running=True, files=tuple(map(behind, paths, count())))


def view_of(kind: type[AgentView], now: int = 0, **state: object) -> AgentView:
    """Return a view of a run that is in this state."""
    sessions = Publisher(Connection([], "test"), "web01", int)
    shipping = SimpleNamespace(sessions=sessions, meter=AgentMeter(int), **state)
    return kind("web01", shipping, lambda: now)


async def test_of_many_files_those_furthest_behind_have_a_series_each() -> None:
    crowd = view_of(Crowd, follower=SimpleNamespace(open_files=0))
    crowd.meter.noticed([Notice(NoticeKind.GONE, "/a", "is gone", 5)])

    told = samples(agent_metrics(crowd)().body.decode())

    behind = {name: value for name, value in told.items() if "file_behind_bytes" in name}
    assert len(behind) == FILES_SHOWN
    assert behind["logshipper_file_behind_bytes|/log/\\n\\udcff"] == 20_001
    assert behind["logshipper_file_behind_bytes|/log/9999.log"] == 9999
    assert told["logshipper_followed_files"] == 10_002
    assert told["logshipper_lost_bytes_total|deleted"] == 5


@pytest.mark.parametrize(
    ("reading", "unacknowledged", "waiting", "trouble", "word"),
    [
        pytest.param(59, 59, "", "", "", id="slow"),
        pytest.param(0, 61, "", "", "acknowledged", id="nothing acknowledged"),
        pytest.param(0, None, "the broker is full", "", "full", id="full"),
        pytest.param(None, None, "", "", "starting", id="starting"),
        pytest.param(61, None, "", "", "cannot be read", id="hung"),
        pytest.param(0, None, "", "disk full", "disk full", id="spool"),
    ],
)
async def test_an_agent_is_unhealthy_for_a_reason(
    reading: float | None, unacknowledged: int | None, waiting: str, trouble: str, word: str
) -> None:
    now = 10**18
    since = None if reading is None else asyncio.get_running_loop().time() - reading
    read = {} if unacknowledged is None else {"f1": now - unacknowledged * 1_000_000_000}
    view = view_of(
        *(AgentView, now),
        follower=SimpleNamespace(busy_since=since),
        has_scanned=reading is not None,
        unacknowledged=lambda: read,
    )
    view.waiting.reason, view.spool = waiting, SimpleNamespace(trouble=trouble)

    assert word in view.health()
    assert bool(word) == bool(view.health())
