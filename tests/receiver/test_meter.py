"""What of a partition is logged."""

import pytest

from receiver.consume.judging import Finding, Kind
from receiver.consume.outcome import Done
from receiver.meter import Meter

GAP = Finding(Kind.GAP, "evil", "/var/log/a", "id", 10, 25, 7, 1)


def told(caplog: pytest.LogCaptureFixture, *findings: Finding) -> list[str]:
    meter = Meter(lambda: 0)
    meter.expect(0)
    meter.done(Done(0, 1, 1, findings=findings), 1, 1.0)
    return caplog.messages


def test_findings_that_are_too_many_for_the_log_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = told(caplog, *[GAP] * 23)

    assert len(messages) == 21
    assert "3 more of these" in messages[-1]
