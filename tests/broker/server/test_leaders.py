"""Leaders of streams, spread over the servers of a cluster."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.server.leaders import keep_spread, surplus
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import stream_names
from tests.broker.cluster import Cluster
from tests.support.processes import Processes

STREAMS = stream_names(4)


def info(stream: str, leader: str, **others: dict[str, object]) -> dict[str, Any]:
    replicas = [{"name": name, "current": True, **state} for name, state in others.items()]
    return {"config": {"name": stream}, "cluster": {"leader": leader, "replicas": replicas}}


LEVEL: dict[str, dict[str, object]] = {"a": {}, "b": {}, "c": {}}


@pytest.mark.parametrize(
    ("leaders", "servers", "expected"),
    [
        ("aa", LEVEL, "b"),
        ("aa", LEVEL | {"b": {"offline": True}}, "c"),
        ("aa", LEVEL | {"b": {"lag": 7}, "c": {"current": False}}, None),
        *((leaders, {"a": {}, "b": {}}, None) for leaders in ("aabb", "aab", "bbb")),
        ("abc", LEVEL, None),
    ],
)
def test_a_stream_goes_to_a_server_that_has_all_of_it_and_leads_two_less(
    leaders: str, servers: dict[str, dict[str, object]], expected: str | None
) -> None:
    infos = [
        info(f"s{n}", leader, **{name: state for name, state in servers.items() if name != leader})
        for n, leader in enumerate(leaders)
    ]

    assert surplus(infos, "a") == (("s0", expected) if expected else None)


@pytest.mark.timeout(300)
def test_leaders_that_are_all_at_one_server_are_spread_over_the_cluster(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, processes, ["streams = 4\n"] * 3)
    cluster.wait_until_ready()
    asyncio.run(_all_to_one_and_back(cluster))


async def _all_to_one_and_back(cluster: Cluster) -> None:
    connection = Connection(cluster.urls, "tests")
    try:
        await _wait(connection, lambda leads: leads["n0"] == len(STREAMS), _to_first)
        async with asyncio.TaskGroup() as group:
            at_work = [
                group.create_task(keep_spread(connection, name, STREAMS, 1.0))
                for name in cluster.nodes
            ]
            await _wait(connection, lambda leads: max(leads.values()) == 2 and len(leads) == 3)
            for task in at_work:
                task.cancel()
    finally:
        await connection.close()


async def _wait(connection: Connection, holds: Any, act: Any = None) -> None:
    async with asyncio.timeout(90):
        while True:
            with suppress(
                ConnectionLost, Rejected
            ):  # a stream that elects its leader does not answer
                if holds(await _leads(connection)):
                    return
                if act:
                    await act(connection)
            await asyncio.sleep(0.5)


async def _leads(connection: Connection) -> Counter[str]:
    infos = [await connection.api(f"STREAM.INFO.{stream}") for stream in STREAMS]
    return Counter(one["cluster"].get("leader", "") for one in infos)


async def _to_first(connection: Connection) -> None:
    for stream in STREAMS:
        with suppress(Rejected):  # it leads already, or is not level yet
            wish = {"placement": {"preferred": "n0"}}
            await connection.api(f"STREAM.LEADER.STEPDOWN.{stream}", wish)
