"""Reads a stream forward, with messages of all sizes and a consumer that is deleted."""

import asyncio

import pytest

from broker.inspect.reader import MessageReader, follow
from broker.topology import Topology
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import LAST_PER_SUBJECT, Start, at_sequence
from nats_logship.wire.streams import STREAM
from tests.broker.inspect.conftest import Publish
from tests.lagging import OnReplicas

pytestmark = pytest.mark.nats


async def _consumers(connection: Connection) -> list[str]:
    return list((await connection.api(f"CONSUMER.NAMES.{STREAM}")).get("consumers") or [])


async def _follow(reader: MessageReader, number: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(90):
        while len(found) < number:
            found.extend(one.sequence for one in await reader.follow())
    return found


async def test_a_deleted_consumer_loses_no_line(connection: Connection, publish: Publish) -> None:
    reader = MessageReader(connection, STREAM, at_sequence(1))
    await reader.close()  # never used: asks nothing
    for _ in range(3):
        await publish("web01", b"a\n")
    first = await _follow(reader, 3)
    (name,) = await _consumers(connection)
    await connection.api(f"CONSUMER.DELETE.{STREAM}.{name}")
    await publish("web01", b"b\n")

    rest = await _follow(reader, 1)

    await reader.close()
    assert first + rest == [1, 2, 3, 4]
    assert await _consumers(connection) == []


async def test_messages_of_all_sizes_are_read(connection: Connection) -> None:
    largest = 8 * 1024 * 1024 - 50
    sizes = [10, largest, 10, 200_000, largest, 10, largest]
    for size in sizes:
        await connection.ask("logs.p0.web01", b"x" * size, patience=60)
    reader = MessageReader(connection, STREAM, at_sequence(1))

    found = [len(one.payload) async for one in reader.read_all(7)]

    assert found == sizes


@pytest.mark.parametrize(("start", "kept"), [(at_sequence(1), 3), (LAST_PER_SUBJECT, 0)])
async def test_reading_does_not_wait_for_purged_messages(
    connection: Connection, publish: Publish, start: Start, kept: int
) -> None:
    for number in range(40):
        await publish(f"web{number}", bytes(1024 * 1024))
    reader = MessageReader(connection, STREAM, start)  # a pull brings less than half of them
    messages = reader.read_all(40)
    found = [(await anext(messages)).sequence]
    await connection.api(f"STREAM.PURGE.{STREAM}", {"keep": kept} if kept else {})

    async with asyncio.timeout(60):
        found += [one.sequence async for one in messages]

    assert found == [*range(1, len(found) - kept + 1), *range(41 - kept, 41)]


@pytest.mark.parametrize("behind", [0, 3])
async def test_a_replica_that_lags_is_not_taken_for_the_end_of_the_stream(
    logs_url: str, publish: Publish, behind: int
) -> None:
    for _ in range(3):
        await publish("web01", b"a\n")
    connection = OnReplicas([logs_url], "test")
    connection.behind = behind
    reader = MessageReader(connection, STREAM, at_sequence(1))

    found = [one.sequence async for one in reader.read_all()]
    connection.behind = behind
    counted = await MessageReader(connection, STREAM, at_sequence(2)).count()
    await connection.close()

    assert (found, counted) == ([1, 2, 3], 2)


async def test_streams_are_followed_together(connection: Connection, publish: Publish) -> None:
    config = Topology(partitions=2).streams()[0] | {"name": "OTHER", "subjects": ["other.>"]}
    await connection.api("STREAM.CREATE.OTHER", config)
    readers = [MessageReader(connection, name, at_sequence(1)) for name in (STREAM, "OTHER")]
    found: set[str] = set()
    await publish("web01", b"a\n")

    async with asyncio.timeout(60):
        async for some in follow(readers):
            found |= {one.subject for one in some}
            if len(found) == 2:
                break
            await connection.ask("other.a", b"x")
    for reader in readers:
        await reader.close()

    assert found == {"logs.p0.web01", "other.a"}
