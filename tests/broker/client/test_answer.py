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


def lagging(told: dict[str, Any], **replica: Any) -> dict[str, Any]:
    told["cluster"]["replicas"][0] |= replica
    return told


@pytest.mark.parametrize(
    ("told", "certain", "level"),
    [
        pytest.param({"config": {"num_replicas": 1}}, True, True, id="no-cluster"),
        pytest.param(info(3, "n9", 0.1, 1.1), True, True, id="whole"),
        pytest.param(info(3, "n9", 0.1, 900), True, True, id="one-is-down"),
        pytest.param(info(3, "", 0.1, 0.1), False, False, id="no-leader"),
        pytest.param(info(3, "n9", 3.0, 3.0), False, False, id="cut-off"),
        pytest.param(info(3, "n9", 0.1, 0.1, offline=2), False, False, id="offline"),
        pytest.param(info(3, "n9"), False, False, id="nothing-known"),
        pytest.param(info(5, "n9", 0.1, 4, 4, 4), False, False, id="minority-of-five"),
        pytest.param(lagging(info(3, "n9", 0.1, 0.1), lag=1), True, False, id="one-lags"),
        pytest.param(
            lagging(info(3, "n9", 0.1, 0.1), current=False), True, False, id="one-catches-up"
        ),
        pytest.param(lagging(info(3, "n9", 900, 0.1), lag=9), True, True, id="who-lags-is-down"),
    ],
)
def test_what_a_stream_holds_is_known_by_a_leader_of_the_majority_and_by_all_that_do_not_lag(
    told: dict[str, Any], certain: bool, level: bool
) -> None:
    assert (is_certain(told), is_level(told)) == (certain, level)
