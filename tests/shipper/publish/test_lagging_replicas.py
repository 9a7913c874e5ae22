"""A replica of the broker that lags answers with what was: a shipper looks again, and goes by what is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker.client.bucket import read, write
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from broker.wire.subjects import Subject
from shipper.positions import Positions
from shipper.publish.claim import Ownership, Registry, take_over
from shipper.publish.publisher import Publisher
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.subject import HostSubject
from shipper.publish.waiting import Waiting
from tests.lagging import Lagging

pytestmark = pytest.mark.nats

LATE, EARLY = 2_000_000_000_000_000_000, 1_700_000_000_000_000_000


@pytest.fixture
async def replica(logs_url: str) -> AsyncIterator[Lagging]:
    connection = Lagging([logs_url], "test")
    yield connection
    await connection.close()


async def take(replica: Lagging, subject: Subject, tag: str, now: int) -> Ownership:
    return await take_over(
        Registry(replica, subject),
        Snapshots(replica, subject.host),
        Positions(),
        tag,
        lambda: now,
        Waiting(),
    )


@pytest.mark.parametrize("lags", [1, 2])
async def test_an_agent_comes_after_the_last_one_that_a_replica_has_not_seen_yet(
    replica: Lagging, web01: Subject, lags: int
) -> None:
    """Its clock is behind that of the last one: without it, it would be taken for the older of the two."""
    await replica.remember(f"LOGS.{web01}")
    before = await take(replica, web01, "aaaaaaaa", LATE)

    replica.lags = lags
    after = await take(replica, web01, "bbbbbbbb", EARLY)

    assert after.agent > before.agent


async def test_a_replica_that_stays_behind_keeps_nobody_from_shipping(
    replica: Lagging, web01: Subject
) -> None:
    await replica.remember(f"LOGS.{web01}")
    await take(replica, web01, "aaaaaaaa", EARLY)

    replica.lags = 1000

    assert (await take(replica, web01, "bbbbbbbb", LATE)).claim == 2


@pytest.mark.parametrize("lags", [0, 1, 3])
async def test_a_round_whose_answer_was_lost_is_found_although_a_replica_has_not_got_it_yet(
    replica: Lagging, web01: Subject, make_round: Callable[..., Round], stream: Any, lags: int
) -> None:
    owner = await take(replica, web01, "aaaaaaaa", EARLY)
    first, second, third = (make_round(str(owner.agent), 4 * n, b"%03d\n" % n) for n in range(3))
    publishers = [publisher(replica, web01, owner) for _ in range(2)]
    await publishers[0].publish(first)
    await publishers[1].publish(first)  # stored already: it is at the same place now
    await replica.remember(f"LOGS.{web01}")
    await publishers[0].publish(second)

    replica.lags = lags
    async with asyncio.timeout(60):
        await publishers[1].publish(second)
    await publishers[1].publish(third)

    assert [one.lines for one in await stream()] == [b"", b"000\n", b"001\n", b"002\n"]


def publisher(replica: Lagging, subject: Subject, owner: Ownership) -> Publisher:
    waiting = Waiting()
    return Publisher(
        replica, Registry(replica, subject), owner, HostSubject(replica, subject), waiting, "none"
    )


async def test_a_number_of_partitions_that_was_does_not_come_back(
    replica: Lagging, web01: Subject
) -> None:
    host_subject = HostSubject(replica, web01, ask_every=0.0)
    entry = await read(replica, CONFIG_BUCKET, PARTITIONS_KEY)
    assert entry is not None
    await replica.remember(f"KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}.{PARTITIONS_KEY}")
    await write(replica, CONFIG_BUCKET, PARTITIONS_KEY, b"5", entry.revision)
    await host_subject.ask()
    now = host_subject.subject

    replica.lags = 1
    await host_subject.ask()

    assert host_subject.subject == now != web01
