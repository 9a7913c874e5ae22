import asyncio
import random
from typing import Any

import pytest

from broker.client.answer import ConnectionLost
from broker.client.connection import BrokerAway, Connection

pytestmark = pytest.mark.nats


async def test_a_broker_that_is_away_is_said_at_once_without_a_password() -> None:
    connection = Connection(["nats://user:secret@127.0.0.1:1", "127.0.0.1:2"], "test")

    assert connection.servers == "nats://127.0.0.1:1, 127.0.0.1:2"
    with pytest.raises(BrokerAway, match=r"no broker at nats://127.0.0.1:1: .*logbroker run"):
        await connection.once()


async def test_a_call_under_way_ends_when_the_broker_is_killed_and_the_next_one_waits_for_it(
    own_server: Any,
) -> None:
    connection, asked = Connection([own_server.url], "test"), asyncio.Event()

    async def say_nothing(_: Any) -> None:
        asked.set()

    await connection.subscribe("silence", say_nothing)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_outcome(connection))
        await asked.wait()
        await asyncio.to_thread(own_server.kill_and_restart)

    assert waiting.result() == "ConnectionLost"
    assert (await connection.api("INFO", patience=20))["streams"] == 0
    await connection.close()


async def _outcome(connection: Connection) -> str:
    try:
        await connection.request("silence", patience=30)
    except ConnectionLost as error:
        return type(error).__name__
    return "answered"


async def test_a_cancellation_is_heard_whenever_it_comes(fresh_url: str) -> None:
    chance = random.Random(5)
    lost = 0
    for _ in range(150):
        connection = Connection([fresh_url], "test")
        connecting = asyncio.create_task(connection.client())
        for _ in range(chance.randrange(1, 100)):
            await asyncio.sleep(0)
        if not connecting.done():
            connecting.cancel()
            await asyncio.wait({connecting})
            lost += not connecting.cancelled()
        await connection.close()

    assert lost == 0
