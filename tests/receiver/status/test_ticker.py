"""Who is behind is told of, and who has caught up is told of once."""

import io
import logging

import pytest

from broker.client.connection import Connection
from broker.wire.offset import Offset
from receiver.consume.outcome import Done
from receiver.meter import Meter
from receiver.status.ticker import Progress, Ticker
from receiver.status.view import View

SECOND = 1_000_000_000


class Behind:
    """A receiver of one partition with a backlog, at a time of its own."""

    def __init__(self, screen: io.StringIO | None = None) -> None:
        self.now = 1_000_000 * SECOND
        self.meter = Meter(lambda: self.now)
        self.meter.expect(0)
        self.meter.claimed(0, Offset(1, 1, "", ""))
        self.ticker = Ticker(View(Connection([], ""), self.meter, lambda: self.now), screen)

    def receives(self, messages: int, pending: int) -> None:
        self.now += 10 * SECOND
        stored_at = self.now - 3600 * SECOND
        self.meter.done(
            Done(*(0, 1, 2, messages, messages, 1_000_000), pending=pending, stored_at=stored_at),
            batches=1,
            seconds=0.5,
        )
        self.ticker.tick()


def test_a_log_has_a_line_now_and_then_and_one_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    behind = Behind()

    behind.receives(100, pending=400)
    behind.receives(100, pending=300)
    behind.receives(300, pending=0)
    behind.receives(10, pending=0)

    assert caplog.messages == [
        "catching up: 25%, 300 messages left, 1h behind, 97.7 KiB/s, ready in 30s",
        "caught up: 400 messages",
    ]


def test_a_terminal_has_one_line_that_is_drawn_over_and_wiped() -> None:
    screen = io.StringIO()
    behind = Behind(screen)

    behind.receives(100, pending=400)
    behind.receives(100, pending=300)
    drawn = screen.getvalue()
    behind.receives(300, pending=0)

    assert drawn.startswith("\r[")
    assert "25%" in drawn
    assert "\n" not in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_who_is_not_behind_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    behind = Behind()

    for _ in range(3):
        behind.receives(100, pending=0)

    assert caplog.messages == []


def test_a_receiver_that_falls_behind_has_no_end_in_sight(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    behind = Behind()

    behind.receives(100, pending=400)
    behind.ticker.tick()
    behind.receives(100, pending=500)

    assert len(caplog.messages) == 2
    assert all(line.endswith("falling behind") for line in caplog.messages)


@pytest.mark.parametrize("width", [0, 1, 20, 60, 80, 200])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_bar_fits_any_terminal(width: int, share: float) -> None:
    drawn = Progress(share, 1e6, 5, 60.0, 5.0).bar(width)

    assert len(drawn) <= max(width - 1, 0)
    if width >= 80:
        assert drawn.startswith("[")
        inside = drawn[1 : drawn.index("]")]
        assert inside.count("#") == int(len(inside) * share)
