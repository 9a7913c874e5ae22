import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.client import bucket
from broker.client.answer import Rejected
from broker.client.connection import Connection
from receiver.consume.claim import Behind, confirm_entry

pytestmark = pytest.mark.nats


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    connection = Connection([logs_url], "test")
    yield connection
    await connection.close()


async def test_a_written_key_comes_back_with_its_revision(connection: Connection) -> None:
    revision = await bucket.write(connection, "LOGS_OFFSETS", "p0", b"one", 0)

    entry = await bucket.read(connection, "LOGS_OFFSETS", "p0")

    assert entry is not None
    assert (entry.value, entry.revision) == (b"one", revision)
    assert datetime.fromisoformat(entry.time).tzinfo is UTC


async def test_of_two_writers_that_read_the_same_revision_one_fails(connection: Connection) -> None:
    revision = await bucket.write(connection, "LOGS_OFFSETS", "p0", b"start", 0)

    results = await asyncio.gather(
        *(bucket.write(connection, "LOGS_OFFSETS", "p0", text, revision) for text in (b"a", b"b")),
        return_exceptions=True,
    )

    assert sorted(type(result).__name__ for result in results) == ["Conflict", "int"]


async def test_what_is_the_newest_of_a_key_is_confirmed_and_nothing_is_written(
    connection: Connection,
) -> None:
    await confirm_entry(connection, "LOGS_OFFSETS", "p0", None)
    await bucket.write(connection, "LOGS_OFFSETS", "p0", b"one", 0)
    entry = await bucket.read(connection, "LOGS_OFFSETS", "p0")
    await confirm_entry(connection, "LOGS_OFFSETS", "p0", entry)

    assert await bucket.read(connection, "LOGS_OFFSETS", "p0") == entry
    await connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})
    await confirm_entry(connection, "LOGS_OFFSETS", "p0", None)


class Crowded(Connection):
    """A connection whose next writes a broker refuses, so many, since another one of the key is under way."""

    left = 0

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if self.left and subject.startswith("$KV."):
            self.left -= 1
            raise Rejected(400, 10164, "wrong last sequence")
        return await super().ask(subject, *rest, **more)


async def test_a_write_is_sent_again_while_another_one_is_under_way(logs_url: str) -> None:
    crowded = Crowded([logs_url], "test")

    crowded.left = 5
    revision = await bucket.write(crowded, "LOGS_OFFSETS", "p0", b"one", 0)
    crowded.left = 5
    with pytest.raises(bucket.Conflict):
        await bucket.write(crowded, "LOGS_OFFSETS", "p0", b"two", revision + 1)
    crowded.left = 5
    await confirm_entry(
        crowded, "LOGS_OFFSETS", "p0", await bucket.read(crowded, "LOGS_OFFSETS", "p0")
    )
    crowded.left = 10_000
    with pytest.raises(bucket.Conflict):
        await bucket.write(crowded, "LOGS_OFFSETS", "p0", b"two", revision)

    await crowded.close()


async def test_what_a_replica_that_lags_has_is_not_confirmed(connection: Connection) -> None:
    revision = await bucket.write(connection, "LOGS_OFFSETS", "p0", b"one", 0)
    await bucket.write(connection, "LOGS_OFFSETS", "p0", b"two", revision)

    for stale in (None, bucket.Entry(b"one", revision)):
        with pytest.raises(Behind):
            await confirm_entry(connection, "LOGS_OFFSETS", "p0", stale)
