"""How far a long piece of work is."""

import logging

import pytest

from broker.app.progress import progress


def test_a_log_has_a_message_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([0, 4, 11, 12, 22])

    with caplog.at_level(logging.INFO), progress("replaying", 200, lambda: next(clock)) as advance:
        for _ in range(4):
            advance(20)

    assert caplog.messages == ["replaying: 20 %", "replaying: 40 %"]


def test_a_terminal_has_a_bar_that_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    with progress("replaying", 4) as advance:
        advance(1)

    shown = capsys.readouterr().err
    assert "25%" in shown
    assert shown.endswith("\x1b[2K")
