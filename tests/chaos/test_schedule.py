"""Schedules are drawn from a seed, and are values."""

from itertools import islice

from tests.chaos.schedule import Kind, Stroke, draw

KINDS = [Kind("kill", weight=3.0), Kind("stop", lasts=(0.2, 9.0)), Kind("full", lasts=(1.0, 4.0))]


def strokes(seed: int, count: int) -> list[Stroke]:
    return list(islice(draw(seed, KINDS), count))


def test_the_same_seed_gives_the_same_strokes_and_another_one_others() -> None:
    assert strokes(5, 50) == strokes(5, 50) != strokes(6, 50)


def test_strokes_of_one_fault_take_all_kinds_in_turn() -> None:
    alone = [one.faults[0].kind for one in strokes(1, 60) if len(one.faults) == 1]

    assert [set(alone[start : start + 3]) for start in (0, 3, 6)] == [{"kill", "stop", "full"}] * 3


def test_faults_overlap_from_the_beginning_on() -> None:
    assert any(len(one.faults) > 1 for one in strokes(1, 5))


def test_faults_last_as_long_as_their_kinds_may() -> None:
    lasts = {(fault.kind, fault.lasts) for one in strokes(2, 200) for fault in one.faults}

    assert {seconds for kind, seconds in lasts if kind == "kill"} == {0.0}
    assert all(0.2 <= seconds <= 9.0 for kind, seconds in lasts if kind == "stop")
    assert all(1.0 <= seconds <= 4.0 for kind, seconds in lasts if kind == "full")


def test_what_is_heavier_comes_more_often() -> None:
    kinds = [fault.kind for one in strokes(3, 400) for fault in one.faults if len(one.faults) > 1]

    assert kinds.count("kill") > 2 * kinds.count("full") > 0
