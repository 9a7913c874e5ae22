"""What of a partition is logged."""

from functools import reduce

import pytest

from receiver.consume.judging import Finding, Kind
from receiver.consume.outcome import Done
from receiver.meter import Meter

GAP = Finding(Kind.GAP, "evil", "/var/log/a", "id", 10, 25, 7, 1)
SUM = reduce(Finding.plus, [GAP] * 5)


def told(caplog: pytest.LogCaptureFixture, *findings: Finding) -> list[str]:
    meter = Meter(lambda: 0)
    meter.expect(0)
    meter.done(Done(0, 1, 1, findings=findings), 1, 1.0)
    return caplog.messages


def test_what_is_one_finding_for_many_is_told_with_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = (
        "partition 0: gap: 5 more of host evil, of 75 bytes in all, the first seen at sequence 7"
    )
    assert told(caplog, GAP, SUM)[1:] == [words]


def test_findings_that_are_too_many_for_the_log_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = told(caplog, *[GAP] * 22, SUM)

    assert len(messages) == 21
    assert "7 more of these" in messages[-1]
