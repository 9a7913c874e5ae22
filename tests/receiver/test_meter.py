"""Metrics, health page and status of a receiver."""

import asyncio
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Blocked, Cause, Done, Ending, Report
from receiver.meter import Meter
from receiver.status.metrics import make_page
from receiver.status.status import HostFile, Status
from receiver.storage.anomalies import Anomaly, AnomalyKind
from tests.pages import samples
from tests.receiver.stored import add, begun
from tests.support.ports import free_port

SECOND = 1_000_000_000
NOW = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * SECOND
FULL = Blocked(Cause.DISK, "p: No space left on device")
GAP = Anomaly(AnomalyKind.GAP, "web01", "/var/log/a.log", "f1", 100, 350, 40, NOW)


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> Meter:
    meter = Meter(clock)
    for partition in (0, 3):
        meter.expect(partition)
    return meter


def exposed(meter: Meter) -> dict[str, float]:
    found = samples(make_page(meter)().body.decode())
    return {name.removeprefix("logreceiver_"): value for name, value in found.items()}


def reported(meter: Meter, partition: int = 0) -> dict[str, Any]:
    return dict(json.loads(meter.report())[str(partition)])


def problem(meter: Meter) -> str:
    return meter.health().body.decode().strip().removeprefix("ok")


def a_session(partition: int, batches: int, pending: int = 0) -> Report:
    counts = {"messages": 40, "lines": 4000, "size": 800_000, "quarantined": 2, "pending": pending}
    stored_at = NOW - 90 * SECOND
    done = Done(partition, 10, 50, **counts, stored_at=stored_at, anomalies=(GAP,))
    return Report(done, batches, Ending.SILENCE, 0.5)


def test_committed_lines_are_counted_for_each_partition(meter: Meter) -> None:
    meter.partitions[0].note_claim(Offset(10, 7, "", ""))
    meter.partitions[0].count(a_session(0, batches=3))
    meter.partitions[0].count(a_session(0, batches=2, pending=5))

    wanted = {
        **{"lines_total": 8000, "bytes_total": 1_600_000, "messages_total": 80},
        **{"batches_total": 5, "quarantined_total": 4, "offset": 50, "epoch": 7},
        **{"lag_messages": 5, "lag_seconds": 90, "last_commit_timestamp_seconds": NOW / SECOND},
        **{"anomalies_total|gap": 2, "anomaly_bytes_total|gap": 500},
    }
    shown = exposed(meter)
    assert {name: shown[f"{name}|0"] for name in wanted} == wanted
    assert shown["lines_total|3"] == shown["lag_seconds|3"] == 0


def test_a_blocked_partition_is_shown_with_its_cause(meter: Meter, clock: Clock) -> None:
    for partition in (0, 3):
        meter.partitions[partition].note_claim(Offset(1, 1, "", ""))
    meter.partitions[3].note_blocked(FULL)
    clock.now += 100 * SECOND
    meter.partitions[3].note_blocked(FULL)

    shown = exposed(meter)
    assert [shown[f"blocked|{one}"] for one in ("disk|3", "disk|0", "broker|3")] == [1, 0, 0]
    assert problem(meter) == f"partition 3 is blocked for 100 s: disk: {FULL.detail}"
    assert meter.status().endswith("; blocked: 3")
    assert reported(meter)["blocked"] is None
    since = "2026-11-21T00:00:00Z"
    assert reported(meter, 3)["blocked"] == {"cause": "disk", "detail": FULL.detail, "since": since}

    meter.partitions[3].count(a_session(3, batches=1))

    assert (exposed(meter)["blocked|disk|3"], problem(meter)) == (0, "")


def test_a_short_refusal_is_not_logged(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    refused = [Blocked(Cause.BROKER, f"the broker refuses: {why}") for why in ("no leader", "503")]
    caplog.set_level("INFO")
    third = meter.partitions[3]
    for _ in range(3):  # as in a restart, three times
        for one in (*refused, *refused):
            third.note_blocked(one)
        assert reported(meter, 3)["blocked"]["detail"] == refused[1].detail
        third.count(a_session(3, batches=0))
    quiet = list(caplog.messages)
    for _ in range(30):
        third.note_blocked(refused[0])

    assert not [message for message in quiet if "blocked" in message or "resumed" in message]
    assert caplog.text.count("partition 3 is blocked, its lines wait in the stream: broker: ") == 1

    third.note_blocked(FULL)
    third.count(a_session(3, batches=1))
    assert "blocked, its lines wait in the stream: disk: " in caplog.text
    assert caplog.messages.count("partition 3: resumed") == 1


async def test_a_receiver_is_not_healthy_while_it_starts_or_the_broker_is_away(
    meter: Meter,
) -> None:
    connection = Connection([f"nats://127.0.0.1:{free_port()}"], "")
    meter = Meter(meter.clock, connection)
    assert (meter.health().status, problem(meter)) == (503, "starting")

    connecting = asyncio.ensure_future(connection.client())
    async with asyncio.timeout(30):
        while not connection.away:  # noqa: ASYNC110 - what is said is waited for
            await asyncio.sleep(0.02)
    connecting.cancel()

    assert problem(meter).startswith("waiting for the broker: no broker at nats://127.0.0.1:")
    assert meter.is_ready


def test_gaps_and_quarantined_messages_are_reported_for_a_day(meter: Meter, clock: Clock) -> None:
    for hours, count in ((0, 0), (20, 1), (0, 2), (5, 1)):
        clock.now += hours * 3600 * SECOND
        report = reported(meter)
        assert (report["gaps"], report["quarantined"]) == (count, 2 * count)
        assert sum(report["gaps_of"].values()) == count
        if count < 2:
            meter.partitions[0].count(a_session(0, batches=1))


def test_the_last_standbys_are_named_for_some_seconds(meter: Meter, clock: Clock) -> None:
    for number in range(20):
        clock.now += 1
        meter.report(b'{"partition": 0, "standby": "central%d"}' % number)
    for junk in (b"[" * 100_000, b'{"partition": 0, "standby": "%s"}' % (b"x" * 301), b"\xff"):
        meter.report(junk)
    meter.report(b'{"partition": 9, "standby": "of another"}')

    assert reported(meter)["standby"] == sorted(f"central{number}" for number in range(12, 20))
    clock.now += 6 * SECOND
    assert reported(meter)["standby"] == []


def test_the_status_line_has_lag_rate_and_owners(meter: Meter, clock: Clock) -> None:
    assert meter.status() == "starting"
    meter.partitions[0].note_claim(Offset(1, 1, "", ""))
    assert not meter.is_ready
    meter.partitions[3].note_released(owner="central2:77")
    meter.partitions[0].count(a_session(0, batches=1, pending=1234))
    clock.now += SECOND

    assert meter.is_ready
    assert problem(meter) == ""
    assert meter.status() == (
        "1 partition, 1,234 messages behind, 781.2 KiB/s; standing by behind central2:77: 3"
    )


def test_a_status_has_the_files_of_all_readable_stores(tmp_path: Path) -> None:
    sizes = {"web01.log.000001": 5, "web01.log.000002": 10, "web01.log": 0, "db.log": 3}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    add(tmp_path, tmp_path, *sizes, moment=NOW)
    (tmp_path / "p2.db").write_bytes(b"none of ours\n" * 500)

    assert list(Status(partitions=[]).with_stores(tmp_path).files) == [
        HostFile(path=path, last_line="2026-11-21T00:00:00Z", size=size, segments=segments)
        for path, size, segments in (("db.log", 3, 0), ("web01.log", 15, 2))
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user")
@pytest.mark.parametrize("is_running", [True, False])
def test_a_user_who_can_only_read_the_stores_sees_the_files(is_running: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        (state / "web01.log").touch()
        add(state, state, "web01.log", moment=NOW)
        with begun(state, state) as store:
            if not is_running:
                store.close()
            for path in (state, *state.iterdir()):
                path.chmod(0o755 if path == state else 0o644)
            os.seteuid(65534)
            try:
                found = Status(partitions=[]).with_stores(state).files
            finally:
                os.seteuid(0)

    assert [file.path for file in found] == ["web01.log"]
