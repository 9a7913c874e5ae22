"""Schedules that fail become shorter ones that fail."""

from collections.abc import Callable

import pytest

from tests.chaos.schedule import Fault, Stroke
from tests.chaos.shrinking import same_failure, shortest, shrink


def stroke(*kinds: str) -> Stroke:
    return Stroke(tuple(Fault(kind, 0.0, 0.0, 1) for kind in kinds))


@pytest.mark.parametrize(
    ("needed", "count"),
    [
        pytest.param({7}, 40, id="one"),
        pytest.param({39}, 40, id="the last"),
        pytest.param({0, 39}, 40, id="first and last"),
        pytest.param({3, 4, 5, 21}, 33, id="four"),
        pytest.param(set(range(6)), 6, id="all"),
        pytest.param({0}, 1, id="the only one"),
    ],
)
def test_what_is_left_is_exactly_what_it_takes(needed: set[int], count: int) -> None:
    assert shortest(range(count), lambda some: needed <= set(some)) == sorted(needed)


def test_one_of_many_is_found_within_a_few_runs() -> None:
    asked: list[list[int]] = []

    shortest(range(64), counting(asked, lambda some: 50 in some))

    assert len(asked) <= 12


def test_nothing_is_asked_twice_and_never_the_whole_or_nothing() -> None:
    asked: list[list[int]] = []

    shortest(range(12), counting(asked, lambda some: {1, 5, 11} <= set(some)))

    assert len(asked) == len({tuple(some) for some in asked})
    assert all(0 < len(some) < 12 for some in asked)


def test_an_order_in_time_is_kept() -> None:
    """The second only fails after the first."""
    found = shortest("xxaxxxbxx", lambda some: "a" in some and "b" in some[some.index("a") :])

    assert found == ["a", "b"]


def test_strokes_go_first_and_then_faults_within_strokes() -> None:
    strokes = [stroke("cut"), stroke("kill", "full", "stop"), stroke("end"), stroke("purge", "cut")]

    def fails(some: list[Stroke]) -> bool:
        kinds = [fault.kind for one in some for fault in one.faults]
        return "full" in kinds and "purge" in kinds

    assert shrink(strokes, fails) == [stroke("full"), stroke("purge")]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("web: 2 missing, 0 torn", "db: 7 missing, 1 torn", True, id="both miss lines"),
        pytest.param("web: 2 missing, 0 torn", "web: 0 missing, 2 torn", False, id="another count"),
        pytest.param("lines flow again: not within 90 s", "lines flow again: not within 9 s\nx", True, id="slow"),
        pytest.param("lines flow again: not within 9 s", "all is received: not within 9 s", False, id="other wait"),
        pytest.param("web: 7 bytes lost and not reported", "x: 9 bytes lost and not reported", True, id="other host"),
    ],
)  # fmt: skip
def test_failures_are_told_apart_by_kind(one: str, other: str, same: bool) -> None:
    assert same_failure([one], ["nothing was hit", other]) is same


def counting(
    asked: list[list[int]], fails: Callable[[list[int]], bool]
) -> Callable[[list[int]], bool]:
    def ask(some: list[int]) -> bool:
        asked.append(some)
        return fails(some)

    return ask
