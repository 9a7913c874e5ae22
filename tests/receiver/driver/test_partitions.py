"""Which partitions there are to receive, by the number of them and by what the stream still holds."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.wire.streams import StreamLayout, subjects_in
from receiver.consume.assignment import Done
from receiver.consume.claim import Claim, OffsetEntry
from receiver.driver.partitions import PartitionSet, find_partitions, wait_for_partitions

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    connection = Connection([logs_url], "tests")
    yield connection
    await connection.close()


async def set_partitions(connection: Connection, count: int) -> None:
    """Set the number of partitions; the stream goes on taking in those that are over."""
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"%d" % count)


async def test_partitions_beyond_the_number_count_until_they_are_received(
    connection: Connection,
) -> None:
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api(
        "STREAM.UPDATE.LOGS", {**config, "subjects": [*subjects_in("LOGS", StreamLayout(5))]}
    )
    for partition in (1, 3, 4):
        await connection.ask(f"logs.p{partition}.web01", b"line\n")
    await set_partitions(connection, 2)

    assert await find_partitions(connection) == PartitionSet(StreamLayout(2), (3, 4))
    assert await find_partitions(connection, {0}) == PartitionSet(StreamLayout(2))
    assert await find_partitions(connection, {0, 2, 3}) == PartitionSet(StreamLayout(2), (3,))

    await Claim(connection, 3, "tests:1", "LOGS").claim(NOW)
    entry = OffsetEntry(connection, 3, lambda: NOW)
    await entry.read()
    await entry.move(Done(3, 1, 3, stored_at=1))
    found = await find_partitions(connection)
    assert found == PartitionSet(StreamLayout(2), (4,))
    assert found.all == (0, 1, 4)


async def test_a_broker_that_is_set_up_later_is_waited_for(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"", {"KV-Operation": "DEL"})
    waiting = asyncio.create_task(wait_for_partitions(connection, asyncio.Event(), None))
    await asyncio.sleep(1.5)
    assert not waiting.done()

    await set_partitions(connection, 7)

    found = await asyncio.wait_for(waiting, 20)
    assert found is not None
    assert found.count == 7
    assert caplog.text.count("waiting for `logbroker apply`") == 1


async def test_a_number_that_is_none_is_a_configuration_error(connection: Connection) -> None:
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"many")

    with pytest.raises(ConfigurationError, match="b'many', no number"):
        await find_partitions(connection)
