"""No consumer pushes lines to where they act as what they say; elsewhere those of admins may."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.client.connection import Connection, Rejected
from broker.server.pushes import Pushes, is_misused

pytestmark = pytest.mark.nats


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("$KV.LOGS_OFFSETS.p1", True),
        ("$JS.API.STREAM.PURGE.LOGS", True),
        ("$JS.hub.API.STREAM.PURGE.LOGS", True),
        ("logship.receiver.r0.x", True),
        ("$JS.S.Yk3", False),
        ("x", False),
        ("", False),
        (None, False),
    ],
)
def test_what_pushes_to_where_lines_act_as_what_they_say_is_misused(
    subject: str | None, expected: bool
) -> None:
    assert is_misused({"deliver_subject": subject}) is expected


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    made = Connection([logs_url], "tests")
    yield made
    await made.close()


async def make(connection: Connection, name: str, **config: Any) -> None:
    config = {"name": name, "ack_policy": "none", "filter_subject": "logs.*.web01", **config}
    await connection.api(
        f"CONSUMER.CREATE.LOGS.{name}.logs.*.web01", {"stream_name": "LOGS", "config": config}
    )


async def is_there(connection: Connection, name: str) -> bool:
    try:
        await connection.api(f"CONSUMER.INFO.LOGS.{name}")
    except Rejected:
        return False
    return True


async def goes(connection: Connection, name: str) -> None:
    for _ in range(2000):
        if not await is_there(connection, name):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name} stays")


def named(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]


async def test_one_that_pushes_is_removed_whether_it_was_there_before_or_comes_and_others_are_left(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await make(connection, "shipper-before", deliver_subject="$KV.LOGS_OFFSETS.p1")
    await make(connection, "shipper-pulled")
    watching = asyncio.create_task(Pushes(connection).run())

    await goes(connection, "shipper-before")
    await make(connection, "tail", deliver_subject="tail")
    await make(connection, "wake-p0-0", deliver_subject="logship.broker")
    await goes(connection, "wake-p0-0")

    assert await is_there(connection, "shipper-pulled")
    assert await is_there(connection, "tail")
    for _ in range(2000):  # it goes first, and is named then
        if len(named(caplog)) == 2:
            break
        await asyncio.sleep(0.01)
    assert named(caplog) == ["shipper-before", "wake-p0-0"]
    watching.cancel()
    await asyncio.wait({watching})
