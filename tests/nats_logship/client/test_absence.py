"""What the log says of a broker that is away, by the time that passes."""

import pytest

from nats_logship.client.absence import Absence


@pytest.fixture
def absence(caplog: pytest.LogCaptureFixture) -> Absence:
    caplog.set_level("INFO")
    return Absence()


def test_a_refusal_is_one_line_then_one_every_ten_minutes_and_one_at_its_end(
    absence: Absence, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(0, 1500, 5):
        absence.note("it refuses us", float(second), keeps_out=True, was_there=True)
    absence.end("nats://b:4222", 1500.0)

    assert caplog.messages == [
        "broker away: it refuses us; trying again",
        "broker away for 10 min, 121 attempts: it refuses us",
        "broker away for 20 min, 241 attempts: it refuses us",
        "broker at nats://b:4222 is back after 1500 s",
    ]


def test_a_restart_is_one_line(absence: Absence, caplog: pytest.LogCaptureFixture) -> None:
    for second in (0.0, 1.0, 9.0):
        absence.note("nobody listens", second, keeps_out=False, was_there=True)
    absence.end("nats://b:4222", 9.5)

    assert caplog.messages == ["broker at nats://b:4222 is back after 10 s"]


def test_pauses_grow_to_five_seconds_and_are_short_again_after_the_next_loss(
    absence: Absence,
) -> None:
    pauses = []
    for now in range(0, 100, 10):
        absence.note("nobody listens", float(now), keeps_out=False, was_there=True)
        pauses.append(absence.retry_at - now)
    absence.end("nats://b:4222", 100.0)
    absence.note("nobody listens", 200.0, keeps_out=False, was_there=True)

    assert pauses[0] <= 0.1
    assert all(2.5 <= pause <= 5.0 for pause in pauses[-3:])
    assert absence.retry_at - 200.0 <= 0.1
