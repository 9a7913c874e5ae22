"""When the files of a silent partition are closed."""

from datetime import timedelta

import pytest

from receiver.consume.assignment import ForcedRotation
from receiver.driver.follower import RotationTimer
from receiver.storage.rotation import Calendar

HOUR = 3_600_000_000_000
SECOND = 1_000_000_000


class Clock:
    now = 100 * HOUR + HOUR // 2

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer(clock: Clock) -> RotationTimer:
    return RotationTimer(Calendar(timedelta(hours=1)), clock)


def test_a_silent_partition_is_closed_once_at_the_start_and_once_after_every_period(
    timer: RotationTimer, clock: Clock
) -> None:
    assert timer.take(is_silent=True) is ForcedRotation.DUE
    for begin in (101, 102):
        for moment, rotation in [
            (0, ForcedRotation.NONE),
            (1, ForcedRotation.NONE),
            (2, ForcedRotation.DUE),
            (3, ForcedRotation.NONE),
        ]:
            clock.now = begin * HOUR + moment * SECOND
            assert timer.is_due is (rotation is ForcedRotation.DUE)
            assert timer.take(is_silent=True) is rotation


def test_while_lines_come_the_clock_closes_nothing(timer: RotationTimer) -> None:
    assert timer.take(is_silent=False) is ForcedRotation.NONE
    assert timer.take(is_silent=True) is ForcedRotation.DUE


def test_asked_for_all_are_closed_once_also_while_lines_come(timer: RotationTimer) -> None:
    timer.asked.set()

    assert timer.take(is_silent=False) is ForcedRotation.ALL
    assert timer.take(is_silent=False) is ForcedRotation.NONE


@pytest.mark.parametrize("is_asked", [False, True], ids=["due", "asked"])
def test_what_could_not_be_done_is_tried_again_in_a_minute_and_holds_up_nothing(
    timer: RotationTimer, clock: Clock, is_asked: bool
) -> None:
    timer.take(is_silent=True)
    rotation = ForcedRotation.ALL if is_asked else ForcedRotation.DUE

    timer.again(rotation)

    assert timer.take(is_silent=True) is ForcedRotation.NONE
    clock.now += 60 * SECOND
    assert timer.take(is_silent=not is_asked) is rotation
    assert timer.take(is_silent=True) is ForcedRotation.NONE
