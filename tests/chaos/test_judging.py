"""What speaks against the suite though every line stands there once."""

from pathlib import Path

import pytest

from receiver.following.account import Account
from receiver.meter import Meter
from receiver.outcome import Done, Ending, Report
from receiver.writing.spans import Finding, Kind
from tests.chaos.judging import repeats


def test_a_receiver_that_had_to_pass_over_lines_tells_on_the_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    finding = Finding(Kind.REPEAT, "web01", "/var/log/app.log", "f1", 10, 30, 7, 0)
    report = Report(Done(0, 1, 8, findings=(finding,)), 1, Ending.SILENCE)
    Account(0, Meter(lambda: 0)).stayed(report)
    (tmp_path / "receiver-one.log").write_text(caplog.text, "utf-8")
    (tmp_path / "receiver-two.log").write_text("nothing to tell\n", "utf-8")

    found = repeats(tmp_path)

    assert len(found) == 1
    assert found[0].startswith("receiver-one was sent lines again 1 times: repeat of 20 bytes")
