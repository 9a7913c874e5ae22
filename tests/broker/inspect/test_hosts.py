"""`logbroker hosts`: what is known of each host, by messages that hosts and others send."""

import asyncio

import pytest

from broker.client.connection import Connection
from broker.inspect.ask import ask_hosts
from broker.wire.streams import STREAM
from tests.broker.inspect.conftest import Publish
from tests.partitions import add_subjects

pytestmark = pytest.mark.nats


async def test_hosts_are_what_was_published(connection: Connection, publish: Publish) -> None:
    assert await ask_hosts(connection) == []
    await publish("web01", b"one\ntwo\n")
    await publish("web01", b"", more=(("/var/log/auth.log", b"x\n"),))
    await publish("web01", b"removed\n", file="/old")
    await publish("db01.example.net", b"x\n", file="/old")
    await publish("db01.example.net", b"y\n", partition=1, agent="2-0000000b")
    await connection.ask("logs.p0.plain", b"of another client")
    await connection.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 3})
    await add_subjects(connection, "logs.q0.>")
    await connection.ask("logs.q0.nobody", b"of no host")

    db, plain, web = await ask_hosts(connection)

    assert (web.host, web.messages, web.file) == ("web01", 2, "/var/log/auth.log")
    assert (db.partitions, db.messages, db.agent) == ((0, 1), 2, "2-0000000b")
    assert (plain.messages, plain.file, plain.agent) == (1, "", "")
    assert 0 < web.last_seen < db.last_seen < plain.last_seen
    assert 0 <= web.silent_seconds < 60


async def test_a_host_that_sends_without_a_pause_is_there(
    connection: Connection, publish: Publish
) -> None:
    await publish("web01", b"one\n")
    await publish("web02", b"two\n")

    async def send() -> None:
        while True:
            await publish("web01", b"more\n")

    sending = asyncio.create_task(send())
    try:
        found = [await ask_hosts(connection) for _ in range(30)]
    finally:
        sending.cancel()

    assert {tuple(host.host for host in hosts) for hosts in found} == {("web01", "web02")}
