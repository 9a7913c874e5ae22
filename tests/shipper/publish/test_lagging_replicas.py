"""A replica of the broker that lags answers with what was: a shipper looks again, and goes by what is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker.client.bucket import read, write
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from broker.wire.subjects import Subject
from shipper.publish.config import BrokerConfig
from shipper.publish.rounds import Round
from tests.lagging import Lagging
from tests.shipper.publish.agents import PublishingAgent

pytestmark = pytest.mark.nats

LATE, EARLY = 2_000_000_000_000_000_000, 1_700_000_000_000_000_000


@pytest.fixture
async def replica(logs_url: str) -> AsyncIterator[Lagging]:
    connection = Lagging([logs_url], "test")
    yield connection
    await connection.close()


async def take(replica: Lagging, tag: str, now: int) -> PublishingAgent:
    return await PublishingAgent(replica, tag, clock=lambda: now).open()


@pytest.mark.parametrize("lags", [1, 2])
async def test_an_agent_comes_after_the_last_one_that_a_replica_has_not_seen_yet(
    replica: Lagging, web01: Subject, lags: int
) -> None:
    """Its clock is behind that of the last one: without it, it would be taken for the older of the two."""
    await replica.remember(f"LOGS.{web01}")
    before = await take(replica, "aaaaaaaa", LATE)

    replica.lags = lags
    after = await take(replica, "bbbbbbbb", EARLY)

    assert after.agent > before.agent


@pytest.mark.parametrize("lags", [0, 1, 3])
async def test_a_round_whose_answer_was_lost_is_found_although_a_replica_has_not_got_it_yet(
    replica: Lagging, web01: Subject, make_round: Callable[..., Round], stream: Any, lags: int
) -> None:
    agent = await take(replica, "aaaaaaaa", EARLY)
    first, second, third = (make_round(str(agent.agent), 4 * n, b"%03d\n" % n) for n in range(3))
    last = await agent.publish(first)
    await replica.remember(f"LOGS.{web01}")
    headers = {"Nats-Expected-Last-Subject-Sequence": str(last)}
    await replica.ask(str(web01), second.payload, second.headers | headers)

    replica.lags = lags
    async with asyncio.timeout(60):
        await agent.publish(second)
    await agent.publish(third)

    lines = [one.lines for one in await stream() if one.lines]
    assert lines == [b"000\n", b"001\n", b"002\n"]


async def test_a_number_of_partitions_that_was_does_not_come_back(
    replica: Lagging, web01: Subject
) -> None:
    config = BrokerConfig(replica, "web01", lambda: LATE)
    await config.read()
    entry = await read(replica, CONFIG_BUCKET, PARTITIONS_KEY)
    assert entry is not None
    await replica.remember(f"KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}.{PARTITIONS_KEY}")
    await write(replica, CONFIG_BUCKET, PARTITIONS_KEY, b"5", entry.revision)
    await config.read()
    assert config.subject != web01

    replica.lags = 1
    await config.read()

    assert config.subject != web01
