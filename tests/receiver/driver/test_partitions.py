"""Which partitions there are to receive, by the number of them and by what the stream still holds."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.client.connection import Connection
from broker.wire.streams import StreamLayout, subjects_in
from receiver.driver.partitions import find_partitions, wait_for_partitions

pytestmark = pytest.mark.nats


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    connection = Connection([logs_url], "tests")
    yield connection
    await connection.close()


async def set_partitions(connection: Connection, count: int) -> None:
    """Set the number of partitions; the stream goes on taking in those that are over."""
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"%d" % count)


async def test_partitions_that_hosts_have_left_are_there_still(connection: Connection) -> None:
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api(
        "STREAM.UPDATE.LOGS", {**config, "subjects": [*subjects_in("LOGS", StreamLayout(5))]}
    )
    await set_partitions(connection, 2)

    assert await find_partitions(connection) == (StreamLayout(2), 5)


async def test_a_broker_that_is_set_up_later_is_waited_for(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"", {"KV-Operation": "DEL"})
    waiting = asyncio.create_task(wait_for_partitions(connection, asyncio.Event(), None))
    async with asyncio.timeout(20):
        while "waiting" not in caplog.text:  # noqa: ASYNC110 - what is said is waited for
            await asyncio.sleep(0.02)
    await asyncio.sleep(1.5)  # it asks once more, and says nothing
    assert not waiting.done()

    await set_partitions(connection, 7)

    found = await asyncio.wait_for(waiting, 20)
    assert found is not None
    assert found[0].partitions == 7
    assert caplog.text.count("run `logbroker apply`; waiting") == 1
