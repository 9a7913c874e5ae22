"""How far a long piece of work is, and a receiver that is behind: a bar on a terminal, now and then a line in a log."""

import io
import logging

import pytest

from broker.client.connection import Connection
from broker.wire.offset import Offset
from receiver.consume.outcome import Done
from receiver.meter import Meter
from receiver.status.progress import CatchingUp, Progress
from receiver.status.view import View

SECOND = 1_000_000_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_that_is_gone_afterwards() -> None:
    terminal, clock = Terminal(), iter(range(0, 1000, 10))

    with Progress(terminal, lambda: next(clock)) as progress:
        progress.show(0.25)

    assert f"[{'#' * 7}{'.' * 23}] 25%, 30s to go" in terminal.getvalue()
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_log_has_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    stream, clock = io.StringIO(), iter([0, 4, 11, 12, 22])

    with caplog.at_level(logging.INFO), Progress(stream, lambda: next(clock)) as progress:
        for part in (0.1, 0.2, 0.3, 0.4):
            progress.show(part)

    assert (len(caplog.messages), stream.getvalue()) == (2, "")
    assert caplog.messages[-1].startswith("40%")


class Behind:
    """A receiver of one partition with a backlog, at a time of its own."""

    def __init__(self) -> None:
        self.now = 1_000_000 * SECOND
        self.meter = Meter(lambda: self.now)
        self.meter.expect(0)
        self.meter.claimed(0, Offset(1, 1, "", ""))
        view = View(Connection([], ""), self.meter, lambda: self.now)
        self.shown = CatchingUp(view, io.StringIO(), lambda: self.now / SECOND)

    def receives(self, messages: int, pending: int) -> None:
        self.now += 10 * SECOND
        stored_at = self.now - 3600 * SECOND
        self.meter.done(
            Done(*(0, 1, 2, messages, messages, 1_000_000), pending=pending, stored_at=stored_at),
            batches=1,
            seconds=0.5,
        )
        self.shown.look()


def test_who_is_behind_is_told_of_and_who_has_caught_up_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    behind = Behind()

    behind.receives(100, pending=400)
    behind.receives(100, pending=300)
    behind.receives(300, pending=0)
    behind.receives(10, pending=0)

    going_on, over = caplog.messages
    assert going_on.startswith("25% caught up, 300 messages left, 1h behind, ")
    assert going_on.endswith("/s, 30s to go")
    assert over == "caught up: 400 messages"


def test_who_is_not_behind_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    behind = Behind()

    for _ in range(3):
        behind.receives(100, pending=0)

    assert caplog.messages == []
