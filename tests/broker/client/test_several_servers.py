"""A broker of several servers: what stands still or is cut off is left for another one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.client.connection import Connection, ConnectionLost
from tests.conftest import Server

pytestmark = pytest.mark.nats


@pytest.fixture
async def mute() -> AsyncIterator[str]:
    """Stand for a server that was stopped: it takes connections and never says a word."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_server_that_says_nothing_is_passed_over(mute: str, fresh_url: str) -> None:
    for _ in range(3):  # in any order
        connection = Connection([mute, fresh_url], "test")
        await connection.once()
        await connection.close()


async def test_a_server_from_which_no_answer_comes_is_left_for_another_one(
    own_server: Server, fresh_url: str
) -> None:
    """One that is cut off from the leader takes whatever it is sent."""
    silent = Connection([own_server.url], "silent")
    connection = Connection([own_server.url, fresh_url], "test")

    async def say_nothing(message: object) -> None:
        """Be somebody who listens, so that the server has nothing to say about it."""

    await silent.subscribe("$JS.API.LEADER", say_nothing)
    while (await connection.client()).address != own_server.url:
        await connection.close()
    with pytest.raises(ConnectionLost):
        await connection.ask("$JS.API.LEADER", patience=2.3)
    assert (await connection.client()).address == own_server.url
    with pytest.raises(ConnectionLost):
        await connection.ask("$JS.API.LEADER", patience=2.3)
    moved_to = (await connection.client()).address
    await connection.close()
    await silent.close()

    assert moved_to != own_server.url
    assert fresh_url.endswith(moved_to.removeprefix("nats://"))


async def test_what_is_under_way_on_a_server_that_is_left_ends_at_once(
    own_server: Server, fresh_url: str
) -> None:
    connection = Connection([own_server.url, fresh_url], "test")
    client = await connection.client()
    waiting = asyncio.ensure_future(connection.guard(asyncio.sleep(60), 60))
    await asyncio.sleep(0)

    connection.judge(5.0, ConnectionLost("no answer"))

    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(waiting, 10)
    assert await connection.client() is not client
    await connection.close()
