from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from broker.app.exits import ConfigurationError
from broker.client import bucket
from broker.client.connection import Connection
from broker.provision.apply import apply, consumers_of
from broker.topology import Topology
from broker.wire.streams import STREAM

pytestmark = pytest.mark.nats


@pytest.fixture
async def connection(fresh_url: str) -> AsyncIterator[Connection]:
    connection = Connection([fresh_url], "test")
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    "topology",
    [
        Topology(partitions=2),
        Topology(partitions=1, max_age=timedelta(seconds=30)),
        Topology(partitions=1, max_bytes=10**6, discard="old"),
        Topology(partitions=300),  # more than a page of the server's list
    ],
    ids=["plain", "short age", "bounded", "many"],
)
async def test_what_was_applied_is_what_a_real_server_tells(
    connection: Connection, topology: Topology
) -> None:
    await apply(connection, topology)

    assert await apply(connection, topology) == ()
    assert len(await consumers_of(connection, STREAM)) == topology.partitions
    entry = await bucket.read(connection, "LOGS_CONFIG", "partitions")
    assert entry is not None
    assert entry.value.decode() == str(topology.partitions)


async def test_a_refused_plan_changes_nothing_at_all(connection: Connection) -> None:
    await apply(connection, Topology(partitions=2))
    await connection.ask("logs.p0.web01", b"line\n")

    with pytest.raises(ConfigurationError, match="logbroker partitions 5"):
        await apply(connection, Topology(partitions=5, max_age=timedelta(hours=1)))

    assert await apply(connection, Topology(partitions=2)) == ()


@pytest.mark.parametrize(
    ("topology", "way_round"),
    [
        (Topology(max_bytes=10**12), "--max-bytes, --max-store"),
        (Topology(replicas=3), r"--replicas \(of a cluster\)"),
    ],
    ids=["more than the store", "replicas alone"],
)
async def test_settings_that_no_restart_mends_are_refused_as_a_configuration(
    connection: Connection, topology: Topology, way_round: str
) -> None:
    with pytest.raises(ConfigurationError, match=way_round):
        await apply(connection, topology)
