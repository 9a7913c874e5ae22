"""When to look again: soon while looks are quick, rarely where they take long."""

from shipper.shipping import Pace, Schedule, schedule

PACE = Pace(round_size=1 << 20, compression="none", once=False, patience=None)


def test_quick_looks_come_as_often_as_the_pace_says() -> None:
    assert schedule(PACE, 0.001) == Schedule(when_called=0.2, when_unsettled=5.0, anyway=5.0)


def test_looks_at_many_files_take_a_small_part_of_the_time_and_come_once_a_minute_anyway() -> None:
    assert schedule(PACE, 0.05) == Schedule(when_called=0.5, when_unsettled=5.0, anyway=25.0)
    assert schedule(PACE, 0.5) == Schedule(when_called=5.0, when_unsettled=25.0, anyway=60.0)


def test_looks_that_take_seconds_come_less_often_than_once_a_minute() -> None:
    assert schedule(PACE, 3.0) == Schedule(when_called=30.0, when_unsettled=150.0, anyway=150.0)
