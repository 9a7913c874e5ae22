from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.provision.comparing import Wanted, compare
from broker.provision.deletion import Cut, Loss, questions, without
from broker.provision.steps import Action, Kind, Plan, Step

DAY = 86_400 * 10**9


def made(before: dict[str, Any], after: dict[str, Any]) -> Plan:
    step = compare(Wanted(Kind.STREAM, "LOGS", after), before).step
    return Plan((step,) if step else ())


@pytest.mark.parametrize(
    ("before", "after", "cuts"),
    [
        ({"max_age": DAY}, {"max_age": 2 * DAY}, []),
        ({"max_age": 2 * DAY}, {"max_age": DAY}, [Cut.AGE]),
        ({"max_age": 0}, {"max_age": DAY}, [Cut.AGE]),
        ({"max_age": DAY}, {"max_age": 0}, []),
        ({"max_msgs": -1, "discard": "new"}, {"max_msgs": 5}, []),
        ({"max_msgs": -1, "discard": "old"}, {"max_msgs": 5}, [Cut.MESSAGES]),
        ({"max_msgs": 5, "discard": "new"}, {"discard": "old"}, [Cut.MESSAGES]),
        ({"max_msgs": 9, "discard": "old"}, {"max_msgs": 5, "discard": "new"}, []),
        ({"max_bytes": 9, "discard": "old"}, {"max_bytes": -1}, []),
        ({"max_bytes": 9, "discard": "old"}, {"max_bytes": 5}, [Cut.BYTES]),
        ({"max_msgs_per_subject": -1}, {"max_msgs_per_subject": 1}, [Cut.PER_SUBJECT]),
        ({"retention": "limits"}, {"retention": "interest"}, [Cut.UNWANTED]),
        ({"retention": "interest"}, {"retention": "limits"}, []),
    ],
)
def test_a_limit_is_asked_about_where_it_may_delete(
    before: dict[str, Any], after: dict[str, Any], cuts: list[Cut]
) -> None:
    assert [question.cut for question in questions(made(before, after))] == cuts


bounds = st.sampled_from([-1, 0, 5, 9])
configs = st.fixed_dictionaries(
    {
        "max_age": bounds,
        "max_msgs": bounds,
        "max_bytes": bounds,
        "max_msgs_per_subject": bounds,
        "discard": st.sampled_from(["old", "new"]),
        "description": st.sampled_from(["", "x"]),
    }
)


@given(configs, configs)
def test_a_plan_without_its_losses_asks_nothing_more_and_keeps_the_rest(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    whole = made(before, after)

    asked = questions(whole)
    safe = without(whole, [Loss(one.step, one.fields, "deletes") for one in asked])

    assert not questions(safe)
    held = {field for one in asked for field in one.fields}
    left = {change.field for step in safe.steps for change in step.changes}
    assert left == {change.field for step in whole.steps for change in step.changes} - held
    for step in safe.steps:
        assert all(
            step.config.get(field) == (before[field] or None) for field in held if before[field]
        )


def test_a_consumer_that_would_forget_stays() -> None:
    step = Step(Action.REMOVE, Kind.CONSUMER, "receiver-p9", {}, stream="LOGS")
    (question,) = questions(Plan((step,)))

    assert question.cut is Cut.POSITION
    assert without(Plan((step,)), [Loss(step, (), "forgets")]) == Plan(())
