"""Metrics, health page and status of a receiver."""

import json
from datetime import UTC, datetime

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Blocked, Cause, Done, Ending, Report
from receiver.meter import Meter
from receiver.status.metrics import make_page
from receiver.storage.anomalies import Anomaly, AnomalyKind
from tests.pages import samples

SECOND = 1_000_000_000
NOW = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * SECOND
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
    return samples(make_page(meter)().body.decode())


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

    told, wanted = (
        exposed(meter),
        {
            **{"lines_total": 8000, "bytes_total": 1_600_000, "messages_total": 80},
            **{"batches_total": 5, "quarantined_total": 4, "offset": 50, "epoch": 7},
            **{"lag_messages": 5, "lag_seconds": 90, "last_commit_timestamp_seconds": NOW / SECOND},
            **{"anomalies_total|gap": 2, "anomaly_bytes_total|gap": 500},
        },
    )
    assert {name: told[f"logreceiver_{name}|0"] for name in wanted} == wanted
    assert told["logreceiver_lines_total|3"] == told["logreceiver_lag_seconds|3"] == 0


def test_a_blocked_partition_is_shown_with_its_cause_until_it_resumes(
    meter: Meter, clock: Clock
) -> None:
    for partition in (0, 3):
        meter.partitions[partition].note_claim(Offset(1, 1, "", ""))
    meter.partitions[3].note_blocked(Blocked(Cause.DISK, "p: No space left on device"))
    clock.now += 100 * SECOND
    meter.partitions[3].note_blocked(Blocked(Cause.DISK, "p: No space left on device"))

    told, ailing, status = exposed(meter), problem(meter), meter.status()
    report = json.loads(meter.report())
    meter.partitions[3].count(a_session(3, batches=1))

    assert told["logreceiver_blocked|disk|3"] == 1
    assert told["logreceiver_blocked|disk|0"] == 0
    assert told["logreceiver_blocked|broker|3"] == 0
    assert ailing == "partition 3 is blocked for 100 s: disk: p: No space left on device"
    assert status.endswith("; blocked: 3")
    assert report["0"]["blocked"] is None
    assert report["3"]["blocked"] == {
        **{"cause": "disk", "detail": "p: No space left on device"},
        "since": "2026-11-21T00:00:00Z",
    }
    assert exposed(meter)["logreceiver_blocked|disk|3"] == 0
    assert problem(meter) == ""


def test_a_short_refusal_of_the_broker_is_not_logged_for_partitions(
    meter: Meter, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [Blocked(Cause.BROKER, f"the broker refuses: {why}") for why in ("no leader", "503")]
    caplog.set_level("INFO")
    third = meter.partitions[3]
    for _ in range(3):  # as in a restart, three times
        for one in (*refused, *refused):
            third.note_blocked(one)
        assert json.loads(meter.report())["3"]["blocked"]["detail"] == refused[1].detail
        third.count(a_session(3, batches=0))
    quiet = list(caplog.messages)
    for _ in range(30):
        third.note_blocked(refused[0])

    assert not [message for message in quiet if "blocked" in message or "resumed" in message]
    assert caplog.text.count("partition 3 is blocked, its lines wait in the stream: broker: ") == 1

    third.note_blocked(Blocked(Cause.DISK, "No space left on device"))
    third.count(a_session(3, batches=1))
    assert "blocked, its lines wait in the stream: disk: " in caplog.text
    assert caplog.messages.count("partition 3: resumed") == 1


def test_a_receiver_is_not_healthy_while_it_starts_or_the_broker_is_away(meter: Meter) -> None:
    connection = Connection([], "")
    meter = Meter(meter.clock, connection)
    assert meter.health().status == 503
    assert problem(meter) == "starting"

    connection.away = "refused"

    assert problem(meter) == "waiting for the broker: refused"
    assert meter.is_ready


def test_gaps_and_quarantined_messages_are_reported_for_a_day(meter: Meter, clock: Clock) -> None:
    def reported() -> tuple[int, int]:
        report = json.loads(meter.report())["0"]
        assert sum(report["gaps_of"].values()) == report["gaps"]
        return report["gaps"], report["quarantined"]

    assert reported() == (0, 0)
    meter.partitions[0].count(a_session(0, batches=1))
    clock.now += 20 * 3600 * SECOND
    meter.partitions[0].count(a_session(0, batches=1))
    assert reported() == (2, 4)
    clock.now += 5 * 3600 * SECOND
    assert reported() == (1, 2)


def test_the_standbys_that_asked_last_are_named_for_some_seconds(
    meter: Meter, clock: Clock
) -> None:
    def named() -> list[str]:
        return list(json.loads(meter.report())["0"]["standby"])

    for number in range(20):
        clock.now += 1
        meter.report(b'{"partition": 0, "standby": "central%d"}' % number)
    for junk in (b"[" * 100_000, b'{"partition": 0, "standby": "%s"}' % (b"x" * 301), b"\xff"):
        meter.report(junk)
    meter.report(b'{"partition": 9, "standby": "of another"}')

    assert named() == sorted(f"central{number}" for number in range(12, 20))
    clock.now += 6 * SECOND
    assert named() == []


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
