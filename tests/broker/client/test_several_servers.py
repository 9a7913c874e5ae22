"""A broker of several servers: what stands still or is cut off is left for another one."""

import asyncio

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection
from tests.conftest import Server

pytestmark = pytest.mark.nats


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


SILENCE, NOBODY = ConnectionLost("no answer"), Rejected(503, 0, "nobody listens")
IN_HAND = Rejected(400, 10071, "wrong last sequence")


@pytest.mark.parametrize(
    ("endings", "is_left"),
    [
        ([(5.0, SILENCE)], True),
        ([(4.0, SILENCE)], False),
        ([(5.0, NOBODY)], False),
        ([(13.0, NOBODY)], True),
        ([(4.0, SILENCE), (0.0, None), (1.0, SILENCE)], False),
        ([(4.4, SILENCE), (0.0, IN_HAND), (5.0, SILENCE)], True),
        ([(9.0, IN_HAND)], False),
    ],
)
async def test_what_is_under_way_ends_at_once_on_a_server_where_nobody_has_led_for_long(
    fresh_url: str, endings: list[tuple[float, ConnectionLost | Rejected | None]], is_left: bool
) -> None:
    connection = Connection([fresh_url, "nats://127.0.0.1:1"], "test")
    client = await connection.client()
    waiting = asyncio.ensure_future(connection.guard(asyncio.sleep(0.01), 60))
    await asyncio.sleep(0)

    for seconds, error in endings:
        connection.judge(seconds, error)

    (ended,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(ended, ConnectionLost) is is_left
    assert (await connection.client() is not client) is is_left
    await connection.close()
