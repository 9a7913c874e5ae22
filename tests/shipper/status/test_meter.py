from collections.abc import Callable

from shipper.publish.rounds import Round
from shipper.status.meter import AgentMeter
from shipper.tail.notices import Notice, NoticeKind

SECOND = 1_000_000_000
Make = Callable[..., Round]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


def test_what_is_not_acknowledged_is_known_by_when_it_was_read(make_round: Make) -> None:
    meter = AgentMeter(Clock())
    first, second = make_round("a", 0, b"a\n"), make_round("a", 2, b"b\n")

    meter.gathered([first, second])
    before = meter.unacknowledged()
    meter.acknowledged(first)
    between = meter.unacknowledged()
    meter.begin()

    assert before == between == {"f1": 1}
    assert meter.unacknowledged() == {}


def test_lost_bytes_are_counted_by_what_became_of_them() -> None:
    meter = AgentMeter(Clock())

    meter.noticed(
        [
            Notice(NoticeKind.GONE, "/a", "is gone", 5),
            Notice(NoticeKind.GONE, "/b", "is gone", 7),
            Notice(NoticeKind.TRUNCATED, "/a", "was truncated", 1),
            Notice(NoticeKind.FOUND, "/a", "is followed"),
        ]
    )

    assert meter.lost == {"deleted": 12, "truncated": 1}
