from broker.declaring.difference import describe
from broker.declaring.plan import Action, Change, Kind, Plan, Step


def test_an_empty_plan_says_that_there_is_nothing_to_do() -> None:
    assert describe(Plan(())) == "nothing to do"


def test_each_changed_field_is_shown_before_and_after_in_peoples_units() -> None:
    age = Change("max_age", 86_400 * 10**9, 2 * 86_400 * 10**9)
    limit = Change("max_bytes", None, 5)

    text = describe(Plan((Step(Action.UPDATE, Kind.STREAM, "LOGS", {}, (age, limit)),)))

    assert text.splitlines() == [
        "~ update stream LOGS",
        "    - max_age: 1d  + max_age: 2d",
        "    - max_bytes: not set  + max_bytes: 5",
    ]
