"""When the files of a partition are closed by the clock, and by hand."""

from datetime import timedelta

from receiver.consume.assignment import ForcedRotation
from receiver.driver.follower import RotationTimer
from receiver.storage.rotation import Calendar

HOUR, SECOND = 3_600_000_000_000, 1_000_000_000
NONE, DUE, ALL = ForcedRotation


def test_a_silent_partition_is_closed_once_a_period_by_hand_at_once_and_again_where_it_failed() -> (
    None
):
    now = [100 * HOUR + HOUR // 2]
    timer = RotationTimer(Calendar(timedelta(hours=1)), lambda: now[0])

    def taken(after: float = 0.0, *, is_silent: bool = True) -> ForcedRotation:
        now[0] += round(after * SECOND)
        return timer.take(is_silent=is_silent)

    assert [taken(is_silent=False), taken(), taken()] == [NONE, DUE, NONE]
    now[0] = 101 * HOUR
    assert [taken(), taken(1.0), taken(1.0), taken(1.0)] == [NONE, NONE, DUE, NONE]
    timer.again(DUE)
    assert [taken(59.0), taken(1.0, is_silent=False), taken(), taken()] == [NONE, NONE, DUE, NONE]

    timer.asked.set()
    assert [taken(is_silent=False), taken(is_silent=False)] == [ALL, NONE]
    timer.again(ALL)
    assert [taken(59.0), taken(1.0, is_silent=False), taken()] == [NONE, ALL, NONE]
