"""The bell of a partition rings for what is there and for what comes, on whatever connection there is by then."""

import asyncio

import pytest

from broker.client.connection import Connection
from broker.topology import Topology
from receiver.consume.wake import Wake
from tests.conftest import Server, apply_topology

pytestmark = pytest.mark.nats


async def test_it_rings_for_one_that_comes_later_and_not_for_another_partition(
    logs_url: str,
) -> None:
    connection = Connection([logs_url], "tests")
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(0.3)

    await connection.ask("logs.p1.web01", b"other")
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await connection.ask("logs.p0.web01", b"mine")

    await asyncio.wait_for(waiting, 20)  # left alone, it would ask again after 30 seconds
    await wake.close()
    await connection.close()


async def test_it_rings_also_after_what_it_waited_on_was_lost(own_server: Server) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=2))
    connection, other = (Connection([own_server.url], name) for name in ("mine", "other"))
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(0.3)

    await asyncio.to_thread(own_server.kill_and_restart)
    await other.ask("logs.p0.web01", b"one")

    await asyncio.wait_for(waiting, 15)
    await connection.close()
    await other.close()
