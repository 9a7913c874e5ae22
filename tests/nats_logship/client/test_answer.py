"""Which answers are certain, and when a request is repeated."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from nats_logship.client import bucket
from nats_logship.client.answer import (
    ConnectionLost,
    Denied,
    Rejected,
    is_up_to_date,
    require_certain,
)
from nats_logship.client.connection import retry_until_answered
from tests.lagging import Crowded

SECOND = 1_000_000_000


def info(replicas: int, leader: str, *active: float, offline: int = 0) -> dict[str, Any]:
    others = [
        {"name": f"n{number}", "current": True, "active": int(seconds * SECOND)}
        for number, seconds in enumerate(active)
    ]
    for other in others[:offline]:
        other["offline"] = True
    config = {"name": "LOGS", "num_replicas": replicas}
    return {"config": config, "cluster": {"leader": leader, "replicas": others}}


def lagging(found: dict[str, Any], **replica: Any) -> dict[str, Any]:
    found["cluster"]["replicas"][0] |= replica
    return found


@pytest.mark.parametrize(
    ("found", "certain"),
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
def test_only_a_leader_with_a_majority_is_certain_of_a_stream(
    found: dict[str, Any], certain: bool
) -> None:
    with nullcontext() if certain else pytest.raises(ConnectionLost, match="LOGS has no leader"):
        require_certain(found)


@pytest.mark.parametrize(
    ("found", "servers", "nearly"),
    [
        pytest.param(info(3, "n9", 0.1, 1.1), {"n9", "n0", "n1"}, set(), id="whole"),
        pytest.param(info(3, "n9", 0.1, 900), {"n9", "n0"}, set(), id="one-is-out-of-touch"),
        pytest.param(lagging(info(3, "n9", 0.1, 0.1), lag=1), {"n9", "n1"}, {"n0"}, id="one-lags"),
        pytest.param(
            lagging(info(3, "n9", 900, 0.1), lag=3), {"n9", "n1"}, set(), id="who-lags-is-down"
        ),
        pytest.param(lagging(info(3, "n9", 0.1, 0.1), lag=1_001), {"n9", "n1"}, set(), id="by-far"),
        pytest.param(
            lagging(info(3, "n9", 0.1, 0.1), current=False), {"n9", "n1"}, {"n0"}, id="catches-up"
        ),
    ],
)
def test_servers_are_up_to_date_that_are_in_touch_with_the_leader_just_now(
    found: dict[str, Any], servers: set[str], nearly: set[str]
) -> None:
    names = ("n0", "n1", "n9", "n-new")
    assert {name for name in names if is_up_to_date(found, name)} == servers
    assert {name for name in names if is_up_to_date(found, name, 2.5)} == servers
    assert {name for name in names if is_up_to_date(found, name, 3.5)} == servers | nearly


def test_a_single_server_is_up_to_date() -> None:
    assert is_up_to_date({"config": {"num_replicas": 1}, "cluster": {"leader": "n9"}}, "")


Trouble = ConnectionLost | Rejected

LOST = ConnectionLost("no answer in 3 s")
NOBODY = Rejected(503, 0, "nobody listens there")
NO_LEADER = Rejected(503, 10008, "JetStream system temporarily unavailable")
NO_STREAM = Rejected(404, 10059, "stream not found")


@pytest.mark.parametrize(
    ("trouble", "is_clustered", "is_waited_out"),
    [
        *((trouble, True, True) for trouble in (LOST, NOBODY, NO_LEADER)),
        *((trouble, True, False) for trouble in (NO_STREAM, Denied("permissions violation"))),
        (NOBODY, False, False),
    ],
    ids=str,
)
async def test_only_errors_that_may_pass_are_waited_out(
    trouble: Trouble, is_clustered: bool, is_waited_out: bool
) -> None:
    connection: Any = AsyncMock()  # to a server that is always there
    connection.connect.return_value = SimpleNamespace(is_clustered=is_clustered)

    found = retry_until_answered(connection, AsyncMock(side_effect=[trouble, "found"]), 60)

    assert await asyncio.gather(found, return_exceptions=True) == [
        "found" if is_waited_out else trouble
    ]


@pytest.mark.nats
async def test_a_write_is_repeated_while_another_one_is_under_way(logs_url: str) -> None:
    crowded = Crowded([logs_url], "test")

    crowded.left = 5
    revision = await bucket.write(crowded, "LOGS_OFFSETS", "p0", b"one", 0)
    crowded.left = 5
    with pytest.raises(bucket.Conflict):
        await bucket.write(crowded, "LOGS_OFFSETS", "p0", b"two", revision + 1)
    crowded.left = 10_000
    with pytest.raises(bucket.Conflict):
        await bucket.write(crowded, "LOGS_OFFSETS", "p0", b"two", revision)

    await crowded.close()
