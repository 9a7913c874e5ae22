"""What is said to be deleted is what a real server deletes, and a start deletes nothing."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.client.connection import Connection
from broker.provision.apply import apply, carry_out, look, losses_of
from broker.provision.plan import plan
from broker.topology import Topology

pytestmark = pytest.mark.nats

BEFORE = Topology(partitions=1)


@pytest.fixture
async def connection(fresh_url: str) -> AsyncIterator[Connection]:
    connection = Connection([fresh_url], "test")
    yield connection
    await connection.close()


async def publish(connection: Connection, hosts: str) -> None:
    for host in hosts:
        await connection.ask(f"logs.p0.{host}", b"x" * 100)


async def held(connection: Connection) -> int:
    return int((await connection.api("STREAM.INFO.LOGS"))["state"]["messages"])


LOWERED = [
    pytest.param(replace(BEFORE, max_msgs=4), 0, id="messages, new ones wait"),
    pytest.param(replace(BEFORE, max_msgs=4, discard="old"), 6, id="messages"),
    pytest.param(replace(BEFORE, max_bytes=300), 0, id="bytes, new ones wait"),
    pytest.param(replace(BEFORE, max_bytes=300, discard="old"), 8, id="bytes"),
    pytest.param(replace(BEFORE, max_age=timedelta(hours=1)), 0, id="age, all younger"),
    pytest.param(replace(BEFORE, replicas=1), 0, id="nothing"),
]


@pytest.mark.parametrize(("after", "gone"), LOWERED)
async def test_messages_go_exactly_where_a_plan_says_so(
    connection: Connection, after: Topology, gone: int
) -> None:
    await apply(connection, BEFORE)
    await publish(connection, "aaaabbbccd")

    made = plan(after, await look(connection, after))
    losses = await losses_of(connection, made)
    await carry_out(connection, made)

    assert bool(losses) == bool(gone)
    assert await held(connection) == 10 - gone
    assert not plan(after, await look(connection, after))


@pytest.mark.parametrize("limit", ["max_msgs", "max_bytes"])
async def test_a_start_holds_back_what_would_delete_and_applies_the_rest(
    connection: Connection, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    await apply(connection, BEFORE)
    await publish(connection, "aaaabbbccd")
    after = replace(BEFORE, discard="old", max_age=timedelta(hours=1), **{limit: 4})

    with caplog.at_level(logging.WARNING):
        await apply(connection, after)

    assert await held(connection) == 10
    assert (await connection.api("STREAM.INFO.LOGS"))["config"]["max_age"] == 3600 * 10**9
    said = caplog.messages[-1]
    assert "LOGS keeps its max_" in said
    assert "logbroker apply" in said
