"""The bell of a partition rings for what is there and for what comes, on whatever connection there is by then."""

import asyncio

import pytest

from broker.client.connection import Connection
from receiver.consume.wake import Wake

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
