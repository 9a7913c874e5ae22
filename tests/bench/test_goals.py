"""What was set out to be reached: reached, missed by how much, or not measured."""

from dataclasses import replace

import pytest

from bench.goals import Goal, goals, told
from bench.result import Record, Result, Run
from tests.bench.test_result import RECORD, RESULT


def result(case: str, system: str, *figures: dict[str, float], holds: bool = True) -> Result:
    runs = tuple(Run(one, 0.5, "fine", holds=holds) for one in figures)
    return replace(RESULT, case=case, system=system, runs=runs)


def drained(*results: Result) -> Record:
    return replace(RECORD, command="drain", results=results)


def found(records: list[Record], about: str) -> Goal:
    return next(goal for goal in goals(records) if goal.about == about)


OURS = result("400 MB", "logship", {"MB/s": 300, "CPU s/GB": 4}, {"MB/s": 200, "CPU s/GB": 5})
THEIRS = result("400 MB", "fluent-bit", {"MB/s": 75, "CPU s/GB": 16}, {"MB/s": 80, "CPU s/GB": 10})


def test_systems_are_compared_turn_by_turn() -> None:
    rate = found([drained(OURS, THEIRS)], "400 MB: MB/s, to Fluent Bit's")
    cost = found([drained(OURS, THEIRS)], "400 MB: CPU s/GB, to Fluent Bit's")

    assert (rate.found, rate.verdict) == (3.25, "reached")
    assert (cost.found, cost.verdict) == (0.375, "reached")


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("", 3, 3.0), "reached"),
        (Goal("", 3, 2.4), "missed by 20%"),
        (Goal("", 300, 300.0, is_most=True), "reached"),
        (Goal("", 1.5, 1.65, is_most=True), "missed by 10%"),
        (Goal("", 3, None), "not measured"),
    ],
)
def test_a_goal_says_by_how_much_it_was_missed(goal: Goal, verdict: str) -> None:
    assert goal.verdict == verdict


def test_what_is_no_result_or_absent_reaches_nothing() -> None:
    void = replace(OURS, runs=tuple(replace(run, holds=False) for run in OURS.runs))
    absent = Result("400 MB", {}, "fluent-bit", RESULT.guarantees, absent="not on PATH")

    for records in ([], [drained(void, THEIRS)], [drained(OURS, absent)]):
        assert found(records, "400 MB: MB/s, to Fluent Bit's").verdict == "not measured"


def test_a_cost_is_flat_over_all_sizes_or_not_known_to_be() -> None:
    sizes = [
        result(f"{size} MB", "logship", {"CPU s/GB": cost})
        for size, cost in (("400", 5.0), ("2,000", 4.0), ("8,000", 4.5))
    ]
    about = "CPU s/GB of 400 MB, 2,000 MB, 8,000 MB: most to least"

    assert found([drained(*sizes)], about).found == 1.25
    assert found([drained(*sizes[:2])], about).found is None


def test_what_lines_of_many_hosts_cost_is_held_against_few() -> None:
    both = [
        result("5 hosts", "logship", {"CPU s/GB": 10.0, "CPU s/GB receiver": 4.0}),
        result("5,000 hosts", "logship", {"CPU s/GB": 14.0, "CPU s/GB receiver": 8.0}),
    ]
    record = replace(RECORD, command="hosts", results=tuple(both))

    assert found([record], "CPU s/GB of 5,000 hosts, to 5").found == 1.4
    assert found([record], "CPU s/GB receiver of 5,000 hosts, to 5").verdict == "missed by 33%"


def test_every_goal_has_a_row() -> None:
    text = told([drained(OURS, THEIRS)])

    assert (
        "| 400 MB: MB/s, to Fluent Bit's | at least 3 | 3.25 | reached | a processor, 0123456 |"
        in text
    )
    assert text.count("not measured") == len(goals([])) - 2
