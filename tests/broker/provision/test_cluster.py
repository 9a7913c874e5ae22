"""Three servers that begin at once: whoever is first declares, the others find it so, and the stream fits on the smallest."""

import asyncio
from pathlib import Path

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection
from broker.provision.apply import consumers_of, join
from broker.topology import Topology
from broker.wire.streams import STREAM
from tests.broker.cluster import Cluster, insist
from tests.support.processes import Processes

pytestmark = [pytest.mark.nats, pytest.mark.timeout(540)]

SIZES = {"n0": 300_000_000, "n1": 200_000_000, "n2": 100_000_000}


async def lose_a_consumer(cluster: Cluster) -> str:
    """Kill the server of a consumer that has one copy; return why its stream's consumers are not told then."""
    config = {"durable_name": "archive", "ack_policy": "explicit", "num_replicas": 1}
    body = {"stream_name": STREAM, "config": config}
    made = await insist(
        cluster.urls, lambda c: c.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.archive", body), 40
    )
    lost = cluster.nodes[made["cluster"]["leader"]]
    lost.kill()
    left = [node.url for node in cluster.nodes.values() if node is not lost]
    connection = Connection([left[0]], "test")
    try:
        while True:
            try:
                found = await consumers_of(connection, STREAM)
            except (ConnectionLost, Rejected) as error:
                if "no server tells of" in str(error):
                    return str(error)
            else:
                assert "archive" in {one["name"] for one in found}
            await asyncio.sleep(0.1)
    finally:
        await connection.close()


def test_servers_of_different_sizes_agree_on_the_smallest_and_go_from_one_replica_to_three(
    tmp_path: Path,
) -> None:
    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes)
        told: list[str] = []

        async def begin(name: str, replicas: int, size: int) -> None:
            connection = Connection([cluster.nodes[name].url], name)
            topology = Topology(partitions=2, replicas=replicas, max_bytes=size)
            await join(connection, name, topology, told.append)
            await connection.close()

        async def begin_all(replicas: int) -> None:
            async with asyncio.timeout(270):
                sizes = SIZES.items()
                await asyncio.gather(*(begin(name, replicas, size) for name, size in sizes))

        asyncio.run(begin_all(1))
        alone = cluster.info()
        sequence = cluster.insist(lambda c: c.ask("logs.p0.web01", b"a line\n"))["seq"]
        asyncio.run(begin_all(3))
        asyncio.run(begin("n2", 3, 250_000_000))  # its disk was exchanged for a larger one
        cluster.wait_until_whole()
        together = cluster.info()
        consumer = cluster.insist(lambda c: c.api(f"CONSUMER.INFO.{STREAM}.receiver-p0"))
        whole = cluster.insist(lambda one: consumers_of(one, STREAM))
        refusal = asyncio.run(lose_a_consumer(cluster))

    assert (alone["config"]["num_replicas"], alone["config"]["max_bytes"]) == (1, 100_000_000)
    assert together["config"]["num_replicas"] == 3
    assert together["config"]["max_bytes"] == 200_000_000
    assert together["state"]["last_seq"] == sequence
    assert len(consumer["cluster"]["replicas"]) == 2
    assert {one["name"] for one in whole} == {"receiver-p0", "receiver-p1"}
    assert "archive" in refusal
    assert any(told), "nobody waited for the cluster"
    assert told[-1] == ""
