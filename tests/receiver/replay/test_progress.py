"""How far a long piece of work is: a bar on a terminal, now and then a line in a log."""

import io
import logging

import pytest

from receiver.replay.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_that_is_gone_afterwards() -> None:
    terminal, clock = Terminal(), iter(range(0, 1000, 10))

    with Progress(terminal, lambda: next(clock)) as progress:
        progress.show(0.25)

    assert f"[{'#' * 7}{'.' * 23}] 25%, 30s to go" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_log_has_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    stream, clock = io.StringIO(), iter([0, 4, 11, 12, 22])

    with caplog.at_level(logging.INFO), Progress(stream, lambda: next(clock)) as progress:
        for part in (0.1, 0.2, 0.3, 0.4):
            progress.show(part)

    assert (len(caplog.messages), stream.getvalue()) == (2, "")
    assert caplog.messages[-1].startswith("40%")
