"""What is asked of a cluster that has just been started: it may have no leader yet."""

import asyncio

import pytest

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import StreamLayout
from receiver.source.survey import layout_of
from tests.conftest import apply_topology

pytestmark = pytest.mark.nats


async def test_partitions_are_asked_for_again_while_none_of_several_servers_can_say(
    fresh_url: str,
) -> None:
    connection = Connection([fresh_url, fresh_url.replace("127.0.0.1", "localhost")], "tests")
    assert connection.has_choice
    asking = asyncio.create_task(layout_of(connection))
    try:
        await asyncio.sleep(1.0)
        await asyncio.to_thread(apply_topology, fresh_url, Topology(partitions=2))
        async with asyncio.timeout(60):
            assert await asking == StreamLayout(2)
    finally:
        asking.cancel()
        await connection.close()


async def test_a_single_broker_without_them_is_refused_soon(fresh_url: str) -> None:
    connection = Connection([fresh_url], "tests")
    try:
        with pytest.raises(ConfigurationError, match="does not say how many partitions"):
            await layout_of(connection)
    finally:
        await connection.close()
