"""The bell of a partition rings for what is there and for what comes, on whatever connection there is by then."""

import asyncio
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.topology import Topology
from receiver.consume import wake as room
from receiver.consume.wake import Wake
from tests.conftest import Server, apply_topology

pytestmark = pytest.mark.nats


async def test_it_rings_for_a_message_that_is_there(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")
    await connection.ask("logs.p0.web01", b"one")
    wake = Wake(connection, 0, "LOGS")

    async with asyncio.timeout(20):
        await wake.wait(1)

    assert await wake.pending(1) == 1
    assert await wake.pending(2) == 0
    await wake.close()
    await connection.close()


async def test_it_rings_for_one_that_comes_later_and_not_for_another_partition(
    logs_url: str,
) -> None:
    connection = Connection([logs_url], "tests")
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(0.3)

    await connection.ask("logs.p1.web01", b"other")
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await connection.ask("logs.p0.web01", b"mine")

    await asyncio.wait_for(waiting, 5)  # left alone, it would ask again after 30 seconds
    await wake.close()
    await connection.close()


async def test_told_to_stop_waiting_it_leaves_no_subscription_and_no_consumer(
    logs_url: str,
) -> None:
    connection = Connection([logs_url], "tests")
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(0.3)
    client = await connection.client()

    waiting.cancel()
    await asyncio.wait({waiting})
    await wake.close()

    assert len(client._subs) == 1  # the inbox of requests
    listed = await connection.api("CONSUMER.NAMES.LOGS")
    assert not listed.get("consumers")
    await connection.close()


async def test_a_pull_that_ends_without_a_message_is_followed_by_another(
    logs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_EXPIRES", 1)
    connection = Connection([logs_url], "tests")
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(2.5)
    assert not waiting.done()

    await connection.ask("logs.p0.web01", b"one")

    await asyncio.wait_for(waiting, 10)
    await connection.close()


@pytest.mark.parametrize("what", ["connection", "server"])
async def test_it_rings_also_after_what_it_waited_on_was_lost(
    own_server: Server, what: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=2))
    connection, other = (Connection([own_server.url], name) for name in ("mine", "other"))
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(0.3)

    if what == "server":
        await asyncio.to_thread(own_server.kill_and_restart)
    else:
        client = await connection.client()
        client._transport.close()  # the consumer at the server lives on
    await asyncio.sleep(1)
    await other.ask("logs.p0.web01", b"one")

    await asyncio.wait_for(waiting, 15)
    await connection.close()
    await other.close()


async def test_of_several_servers_it_waits_on_none_that_gives_no_sign_of_life(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What died with the consumer is made anew well before the pull would have ended."""
    monkeypatch.setattr(room, "_BEAT", 1)
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=2))
    servers = [own_server.url, own_server.url.replace("127.0.0.1", "localhost")]
    connection, other = Connection(servers, "mine"), Connection(servers[:1], "other")
    wake = Wake(connection, 0, "LOGS")
    waiting = asyncio.ensure_future(wake.wait(1))
    await asyncio.sleep(2.5)
    assert not waiting.done(), "signs of life are no lines"

    await other.api(f"CONSUMER.DELETE.LOGS.{wake._name}")
    await other.ask("logs.p0.web01", b"one")

    await asyncio.wait_for(waiting, 15)
    await connection.close()
    await other.close()
