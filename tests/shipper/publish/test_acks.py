"""The answer to a round: awaited for long while the round is on its way, and no longer than it takes once it is there."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from broker.client.connection import Connection, ConnectionLost, Message
from shipper.publish.acks import Acks

pytestmark = pytest.mark.nats

SILENT = "nobody.answers"  # as a leader that has died, while its server is not known to be gone


@pytest.fixture
async def other(nats_url: str) -> AsyncIterator[Connection]:
    connection = Connection([nats_url], "other")
    yield connection
    await connection.close()


@pytest.fixture
async def connection(nats_url: str, other: Connection) -> AsyncIterator[Connection]:
    """Return a connection to what looks like a cluster."""
    connection = Connection([nats_url, nats_url.replace("127.0.0.1", "localhost")], "test")
    yield connection
    await connection.close()


async def test_an_answer_that_is_due_is_not_waited_for_any_longer_than_twice_the_time_before(
    connection: Connection, other: Connection
) -> None:
    async def say_nothing(message: object) -> None:
        """Be there."""

    await other.subscribe(SILENT, say_nothing)
    answers = Acks(connection, due=0.1)

    async with asyncio.timeout(60):
        for due in ("0.1", "0.2"):
            with pytest.raises(ConnectionLost, match=f"no answer in {re.escape(due)} s"):
                await answers.ask(SILENT, b"a round", {})


async def test_an_answer_that_comes_in_time_is_taken(
    connection: Connection, other: Connection
) -> None:
    async def answer(message: Message) -> None:
        await asyncio.sleep(0.5)  # it is due by now
        await message.respond(b"here it is")

    await other.subscribe(SILENT, answer)
    answers = Acks(connection, due=30.0)

    assert await asyncio.wait_for(answers.ask(SILENT, b"a round", {}), 20) == b"here it is"
