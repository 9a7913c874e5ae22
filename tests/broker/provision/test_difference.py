import pytest

from broker.provision.difference import as_json, describe, shown
from broker.provision.steps import Action, Change, Loss, Plan, ResourceKind, Step


def test_an_empty_plan_says_that_there_is_nothing_to_do() -> None:
    assert describe(Plan(())) == "nothing to do"


def test_each_changed_field_is_shown_before_and_after_in_peoples_units() -> None:
    age = Change("max_age", 86_400 * 10**9, 2 * 86_400 * 10**9)
    limit = Change("max_bytes", None, 5)

    text = describe(Plan((Step(Action.UPDATE, ResourceKind.STREAM, "LOGS", {}, (age, limit)),)))

    assert text.splitlines() == [
        "~ update stream LOGS",
        "    - max_age: 1d  + max_age: 2d",
        "    - max_bytes: not set  + max_bytes: 5",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"_nats.ver": "2.15.1", "owner": "ops", "tier": "gold"}, "owner=ops, tier=gold"),
        ({"cluster": "east", "tags": ["ssd", "big"]}, "cluster=east, tags=ssd,big"),
        ({"_nats.ver": "2.15.1"}, "not set"),
        ({}, "not set"),
        (["logs.p0.>", "logs.p1.>"], "logs.p0.>,logs.p1.>"),
        ([*range(12)], "0,1,2,3,4,5,6,7,8,9 and 2 more"),
        (False, "False"),
        (0, "0"),
    ],
)
def test_a_value_is_shown_without_what_the_server_adds(value: object, text: str) -> None:
    assert shown("field", value) == text


def test_what_is_deleted_stands_below_what_deletes_it() -> None:
    step = Step(Action.UPDATE, ResourceKind.STREAM, "LOGS", {}, (Change("max_msgs", -1, 5),))

    text = describe(Plan((step,)), [Loss(step, ("max_msgs",), "deletes 3 of 8 messages")])

    assert text.splitlines()[2] == "    ! deletes 3 of 8 messages"
    (found,) = as_json(Plan((step,)), [Loss(step, ("max_msgs",), "deletes 3 of 8 messages")])
    assert found["changes"] == {"max_msgs": {"before": -1, "after": 5}}
    assert found["deletes"] == ["deletes 3 of 8 messages"]
