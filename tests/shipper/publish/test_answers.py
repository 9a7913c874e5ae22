"""The answer to a round: awaited for long while the round is on its way, and no longer than it takes once it is there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.client.connection import Connection, ConnectionLost
from shipper.publish.acks import Answers

pytestmark = pytest.mark.nats

SILENT = "nobody.answers"  # as a leader that has died, while its server is not known to be gone


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[Connection]:
    connection, other = (Connection([nats_url], name) for name in ("test", "other"))

    async def say_nothing(message: object) -> None:
        """Be there."""

    await other.subscribe(SILENT, say_nothing)
    yield connection
    await connection.close()
    await other.close()


async def test_an_answer_that_is_due_is_not_waited_for_any_longer(connection: Connection) -> None:
    answers = Answers(connection)
    reply = await answers.expect()
    await connection.publish(SILENT, b"a round", reply)

    async with asyncio.timeout(60):
        with pytest.raises(ConnectionLost, match=r"no answer in 0\.1 s"):
            await answers.wait(60.0, SILENT, due=0.1)


async def test_an_answer_that_comes_in_time_is_taken(connection: Connection) -> None:
    answers = Answers(connection)
    reply = await answers.expect()
    waiting = asyncio.ensure_future(answers.wait(60.0, SILENT, due=30.0))
    await asyncio.sleep(0.5)  # it is due by now

    await connection.publish(reply, b"here it is")

    assert await asyncio.wait_for(waiting, 20) == b"here it is"
