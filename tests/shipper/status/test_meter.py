from collections.abc import Callable
from dataclasses import replace

import pytest

from shipper.publish.rounds import Round
from shipper.status.meter import Meter
from shipper.tail.notices import Notice, NoticeKind

SECOND = 1_000_000_000
Make = Callable[..., Round]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


def test_an_acknowledged_round_is_counted_by_lines_bytes_and_time(make_round: Make) -> None:
    clock = Clock()
    meter = Meter(clock)
    first, second = make_round("agent", 0, b"a\nb\n"), make_round("agent", 4, b"c\n", "f2")
    sections = first.origin.sections + second.origin.sections
    round_ = Round(replace(first.origin, sections=sections), first.payload + second.payload)

    observed: list[float] = []
    meter.observe = observed.append

    meter.gathered([round_])
    clock.now = round_.origin.read_at + SECOND // 4
    meter.acknowledged(round_)

    assert (meter.lines, meter.bytes, meter.sent, meter.rounds) == (3, 6, 6, 1)
    assert meter.last_ack == clock.now
    assert observed == [pytest.approx(0.25)]
    assert meter.unacknowledged() == {}


def test_what_is_not_acknowledged_is_known_by_when_it_was_read(make_round: Make) -> None:
    meter = Meter(Clock())
    first, second = make_round("a", 0, b"a\n"), make_round("a", 2, b"b\n")

    meter.gathered([first, second])
    before = meter.unacknowledged()
    meter.acknowledged(first)
    between = meter.unacknowledged()
    meter.begin()

    assert before == between == {"f1": 1}
    assert meter.unacknowledged() == {}


def test_lost_bytes_are_counted_by_what_became_of_them() -> None:
    meter = Meter(Clock())

    meter.noticed(
        [
            Notice(NoticeKind.GONE, "/a", "is gone", 5),
            Notice(NoticeKind.GONE, "/b", "is gone", 7),
            Notice(NoticeKind.TRUNCATED, "/a", "was truncated", 1),
            Notice(NoticeKind.FOUND, "/a", "is followed"),
        ]
    )

    assert meter.lost == {"deleted": 12, "truncated": 1}
