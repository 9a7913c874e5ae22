"""What is said to be deleted is what a real server deletes, and a start deletes nothing."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.client.connection import Connection
from broker.provision.apply import apply, carry_out, look, with_deletions
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

    made = await with_deletions(connection, plan(after, await look(connection, after)))
    await carry_out(connection, made)

    assert any(step.deletes for step in made) == bool(gone)
    assert await held(connection) == 10 - gone
    assert not plan(after, await look(connection, after))


async def test_a_start_deletes_nothing(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await apply(connection, BEFORE)
    await publish(connection, "aaaabbbccd")

    with caplog.at_level(logging.WARNING):
        await apply(connection, replace(BEFORE, discard="old", max_bytes=300))

    assert await held(connection) == 10
    assert "LOGS stays as it is, since the change deletes" in caplog.text
