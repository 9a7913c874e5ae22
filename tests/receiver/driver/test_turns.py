"""When the files of a silent partition are turned."""

from datetime import timedelta

import pytest

from receiver.consume.assignment import Turn
from receiver.driver.turns import Turns
from receiver.storage.calendar import Calendar

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
def turns(clock: Clock) -> Turns:
    return Turns(Calendar(timedelta(hours=1)), clock)


def test_a_silent_partition_is_turned_once_at_the_start_and_once_after_every_period(
    turns: Turns, clock: Clock
) -> None:
    assert turns.take(is_silent=True) is Turn.DUE
    for begin in (101, 102):
        for moment, turn in [(0, Turn.NONE), (1, Turn.NONE), (2, Turn.DUE), (3, Turn.NONE)]:
            clock.now = begin * HOUR + moment * SECOND
            assert turns.is_due is (turn is Turn.DUE)
            assert turns.take(is_silent=True) is turn


def test_while_lines_come_the_clock_turns_nothing(turns: Turns) -> None:
    assert turns.take(is_silent=False) is Turn.NONE
    assert turns.take(is_silent=True) is Turn.DUE


def test_asked_for_all_are_turned_once_also_while_lines_come(turns: Turns) -> None:
    turns.asked.set()

    assert turns.take(is_silent=False) is Turn.ALL
    assert turns.take(is_silent=False) is Turn.NONE


@pytest.mark.parametrize("is_asked", [False, True], ids=["due", "asked"])
def test_what_could_not_be_done_is_tried_again_in_a_minute_and_holds_up_nothing(
    turns: Turns, clock: Clock, is_asked: bool
) -> None:
    turns.take(is_silent=True)
    turn = Turn.ALL if is_asked else Turn.DUE

    turns.again(turn)

    assert turns.take(is_silent=True) is Turn.NONE
    clock.now += 60 * SECOND
    assert turns.take(is_silent=not is_asked) is turn
    assert turns.take(is_silent=True) is Turn.NONE


def test_the_clock_is_looked_at_again_within_a_minute_and_never_at_once(
    turns: Turns, clock: Clock
) -> None:
    assert turns.left() == 2
    turns.take(is_silent=True)
    assert turns.left() == 60
    clock.now = 101 * HOUR - 3 * SECOND
    assert turns.left() == 5


def test_without_periods_the_clock_turns_nothing_ever(clock: Clock) -> None:
    turns = Turns(Calendar(timedelta()), clock)
    turns.take(is_silent=True)

    clock.now += 1000 * 365 * 24 * HOUR

    assert turns.take(is_silent=True) is Turn.NONE
