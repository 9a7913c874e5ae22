"""Three brokers that start at once set up one cluster, whose stream fits on the smallest disk."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.provision.apply import list_consumers
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from tests.broker.cluster import Cluster, Node, insist
from tests.broker.conftest import logbroker
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.timeout(540)]

SIZES = (300_000_000, 200_000_000, 100_000_000)


def settings_of(size: int, replicas: int) -> str:
    return f"max_bytes = {size}\nreplicas = {replicas}\n"


async def lose_a_consumer(cluster: Cluster) -> str:
    """Kill the broker of a consumer with one replica; return why its stream's list then fails."""
    config = {"durable_name": "archive", "ack_policy": "explicit", "num_replicas": 1}
    body = {"stream_name": STREAM, "config": config}
    made = await insist(
        cluster.urls, lambda c: c.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.archive", body), 40
    )
    lost = cluster.nodes[made["cluster"]["leader"]]
    lost.process.kill()
    left = [node.url for node in cluster.nodes.values() if node is not lost]

    async def refused(connection: Connection) -> str:
        try:
            found = await list_consumers(connection, STREAM)
        except (ConnectionLost, Rejected) as error:
            if "no server answers for" in str(error):
                return str(error)
            raise
        assert "archive" in {one["name"] for one in found}
        raise ConnectionLost("the consumer is still listed")

    return await insist(left[:1], refused, 300)


@pytest.mark.long
def test_brokers_agree_on_the_smallest_disk_and_add_replicas_later(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes, [settings_of(size, 1) for size in SIZES])
        cluster.wait_until_ready()

        def reload(node: Node, size: int) -> None:
            node.config.write_text(settings_of(size, 3), "utf-8")
            node.process.hang_up()

        def has(field: str, value: Any) -> None:
            wait_until(f"{field} is {value}", lambda: cluster.info()["config"][field] == value, 120)

        has("num_replicas", 1)
        has("max_bytes", 100_000_000)
        sequence = cluster.insist(lambda c: c.ask("logs.p0.web01", b"a line\n"))["seq"]
        for node, size in zip(cluster.nodes.values(), SIZES, strict=True):
            reload(node, size)
        has("num_replicas", 3)
        has("max_bytes", 100_000_000)
        larger = cluster.nodes["n2"]
        reload(larger, 250_000_000)  # its disk was exchanged for a larger one
        said = "settings reloaded; changed: max_bytes"
        wait_until("it uses that", lambda: said in larger.process.read_log(), 120)
        servers = [word for url in cluster.urls for word in ("--server", url)]
        raised = logbroker("apply", "--max-bytes", "200MB", "--replicas", "3", *servers)
        assert raised.returncode == 0, raised.stderr
        has("max_bytes", 200_000_000)
        cluster.wait_until_whole()
        refusal = asyncio.run(lose_a_consumer(cluster))

    assert "waiting for its cluster" in cluster.nodes["n0"].process.read_log()
    assert sequence == 1
    assert "archive" in refusal


@pytest.mark.long
def test_a_broker_whose_cluster_is_away_takes_over_what_the_streams_need_not_know(
    tmp_path: Path,
) -> None:
    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes)
        cluster.wait_until_ready()
        for name in ("n1", "n2"):
            cluster.nodes[name].process.kill()
        left = cluster.nodes["n0"]
        left.config.write_text("[nats]\nmax_connections = 79\n", "utf-8")
        left.process.hang_up()
        conf = left.folder / "nats-server.conf"

        wait_until("it is written", lambda: '"max_connections": 79' in conf.read_text("utf-8"), 40)
        wait_until(
            "it is said", lambda: "the cluster does not answer" in left.process.read_log(), 60
        )
        assert '"max_connections": 79' in conf.read_text("utf-8")
