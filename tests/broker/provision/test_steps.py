from typing import Any

import pytest

from broker.provision.steps import (
    Loss,
    ResourceKind,
    Step,
    as_json,
    compare,
    describe,
    losses_in,
    shown,
)


def stream(**config: Any) -> Step:
    return Step(ResourceKind.STREAM, "LOGS", config)


def test_metadata_of_others_stays() -> None:
    found = {"name": "LOGS", "metadata": {"_nats.ver": "2.15.1", "theirs": "1", "ours": "old"}}

    (step,) = compare(stream(metadata={"ours": "new"}), found)

    assert step.config["metadata"] == {"_nats.ver": "2.15.1", "theirs": "1", "ours": "new"}
    assert not compare(stream(metadata={"ours": "new"}), step.config)


def test_people_and_programs_read_what_changes_and_what_that_deletes() -> None:
    wanted = stream(max_age=2 * 86_400 * 10**9, max_bytes=33_475_333_259, metadata={"_nats.x": "1"})
    made = compare(wanted, {"max_age": 86_400 * 10**9})
    losses = [Loss(made[0], ("max_age",), "deletes lines")]

    assert describe(made, losses).splitlines() == [
        "~ update stream LOGS",
        "    - max_age: 1d  + max_age: 2d",
        "    - max_bytes: not set  + max_bytes: 31.2 GiB",
        "    ! deletes lines",
    ]
    (found,) = as_json(made, losses)
    assert found["changes"]["max_bytes"] == {"before": None, "after": 33_475_333_259}
    assert found["deletes"] == ["deletes lines"]
    assert describe(()) == "nothing to do"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"_nats.ver": "2.15.1", "owner": "ops", "tags": ["ssd", "big"]},
            "owner=ops, tags=ssd,big",
        ),
        ({"_nats.ver": "2.15.1"}, "not set"),
        ([*range(12)], "0,1,2,3,4,5,6,7,8,9 and 2 more"),
        (False, "False"),
        (0, "0"),
    ],
)
def test_a_value_is_shown_without_what_the_server_adds(value: object, text: str) -> None:
    assert shown("field", value) == text


@pytest.mark.parametrize(("first", "is_lost"), [("10:00:03", False), ("09:59:57", True)])
def test_what_is_too_old_is_known_by_the_servers_clock(first: str, is_lost: bool) -> None:
    (step,) = compare(stream(max_age=2 * 10**9), {"name": "LOGS"})
    state = {"messages": 1, "bytes": 1, "first_ts": f"2026-11-23T{first}.123456789Z"}

    found = list(losses_in(step, {"ts": "2026-11-23T10:00:01.987654321Z", "state": state}))

    assert bool(found) == is_lost
