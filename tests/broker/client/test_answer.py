from typing import Any

import pytest

from broker.client.answer import is_certain, is_level

SECOND = 1_000_000_000


def info(replicas: int, leader: str, *active: float, offline: int = 0) -> dict[str, Any]:
    others = [
        {"name": f"n{number}", "current": True, "active": int(seconds * SECOND)}
        for number, seconds in enumerate(active)
    ]
    for other in others[:offline]:
        other["offline"] = True
    return {
        "config": {"num_replicas": replicas},
        "cluster": {"leader": leader, "replicas": others},
    }


@pytest.mark.parametrize(
    ("told", "certain"),
    [
        pytest.param({"config": {"num_replicas": 1}}, True, id="no-cluster"),
        pytest.param(info(3, "n9", 0.1, 1.1), True, id="whole"),
        pytest.param(info(3, "n9", 0.1, 900), True, id="one-is-down"),
        pytest.param(info(3, "", 0.1, 0.1), False, id="no-leader"),
        pytest.param(info(3, "n9", 3.0, 3.0), False, id="cut-off"),
        pytest.param(info(3, "n9", 0.1, 0.1, offline=2), False, id="offline"),
        pytest.param(info(3, "n9"), False, id="nothing-known"),
        pytest.param(info(5, "n9", 0.1, 4, 4, 4), False, id="minority-of-five"),
    ],
)
def test_only_a_leader_in_touch_with_the_majority_is_sure_of_what_a_stream_holds(
    told: dict[str, Any], certain: bool
) -> None:
    assert is_certain(told) is certain


def lagging(told: dict[str, Any], **replica: Any) -> dict[str, Any]:
    told["cluster"]["replicas"][0] |= replica
    return told


@pytest.mark.parametrize(
    ("told", "level"),
    [
        pytest.param({"config": {"num_replicas": 1}}, True, id="one-replica"),
        pytest.param(info(3, "n9", 0.1, 0.1), True, id="whole"),
        pytest.param(lagging(info(3, "n9", 0.1, 0.1), lag=1), False, id="one-lags"),
        pytest.param(lagging(info(3, "n9", 0.1, 0.1), current=False), False, id="one-catches-up"),
        pytest.param(lagging(info(3, "n9", 900, 0.1), lag=9), True, id="who-lags-is-down"),
        pytest.param(info(3, "", 0.1, 0.1), False, id="no-leader"),
    ],
)
def test_replicas_are_level_when_none_that_answers_lags(told: dict[str, Any], level: bool) -> None:
    assert is_level(told) is level
