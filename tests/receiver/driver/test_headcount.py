"""A number of partitions that changes under a running receiver is told once."""

import asyncio

import pytest

from broker.client.connection import Connection
from receiver.driver import headcount

pytestmark = pytest.mark.nats


async def test_another_number_of_partitions_is_said_once_and_the_same_never(
    logs_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(headcount, "_LOOK", 0.02)
    connection = Connection([logs_url], "tests")
    watching = asyncio.ensure_future(headcount.watch(connection, 2))
    await asyncio.sleep(0.3)
    assert not caplog.records

    await connection.ask("$KV.LOGS_CONFIG.partitions", b"5")
    for _ in range(500):
        if caplog.records:
            break
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)

    assert [r.getMessage()[:40] for r in caplog.records] == [
        "the broker has 5 partitions by now, it h"
    ]
    watching.cancel()
    await connection.close()
