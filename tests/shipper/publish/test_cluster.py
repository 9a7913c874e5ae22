"""Three nats-servers with a replicated stream: whichever is killed in mid-round, lines come once and in order."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.bucket import write
from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from shipper.publish.rounds import Round
from tests.shipper.publish.agents import PublishingAgent
from tests.support.processes import Process, Processes

pytestmark = pytest.mark.nats

Servers = dict[str, Process]


@pytest.fixture
def servers(processes: Processes, tmp_path: Path, free_port: Callable[[], int]) -> Servers:
    """Three servers of a cluster, by address."""
    ports, routes = ([free_port() for _ in range(3)] for _ in range(2))
    started = {}
    for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
        path = tmp_path / f"n{number}.conf"
        others = ", ".join(f'"nats://127.0.0.1:{other}"' for other in routes)
        path.write_text(
            f'server_name: n{number}\nlisten: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{tmp_path}/n{number}" }}\n'
            f'cluster {{ name: c, listen: "127.0.0.1:{route}", routes: [{others}] }}\n'
        )
        binary = Path(sys.executable).with_name("nats-server")
        started[f"nats://127.0.0.1:{port}"] = processes.start(f"n{number}", [binary, "-c", path])
    return started


async def apply(connection: Connection) -> None:
    for stream in Topology(replicas=3).streams():
        await insist(partial(connection.api, f"STREAM.CREATE.{stream['name']}", stream))
    await insist(partial(write, connection, CONFIG_BUCKET, PARTITIONS_KEY, b"2", 0))


async def insist(ask: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(90):
        while True:
            try:
                await ask()
            except (ConnectionLost, Rejected):  # no leader yet
                await asyncio.sleep(0.1)
            else:
                return


async def test_a_server_killed_in_mid_round_costs_no_line_and_repeats_none(
    servers: Servers, make_round: Callable[..., Round]
) -> None:
    connection = Connection(list(servers), "test")
    await apply(connection)
    leader = await connect_to_leader(connection, servers)
    agent = await PublishingAgent(connection).open()
    lines = [b"line %05d\n" % number for number in range(3000)]

    a_third = asyncio.Event()

    async def publish_all() -> None:
        for first in range(0, len(lines), 10):
            part = b"".join(lines[first : first + 10])
            await agent.publish(make_round(str(agent.agent), 11 * first, part))
            if first == len(lines) // 3:
                a_third.set()  # and the next round is sent before anybody else has a turn

    publishing = asyncio.create_task(publish_all())
    await a_third.wait()
    assert not publishing.done()
    leader.kill()
    await publishing
    leader.start()

    after = await PublishingAgent(connection, "bbbbbbbb").open()
    stored = await stream(connection)
    await connection.close()
    assert b"".join(stored) == b"".join(lines)
    assert [c.offset for c in after.positions.files.values()] == [11 * len(lines)]


async def connect_to_leader(connection: Connection, servers: Servers) -> Process:
    """Connect to the server that leads the stream: its end is that of the connection and of the leadership."""
    leader = (await connection.api("STREAM.INFO.LOGS"))["cluster"]["leader"]
    while servers[(await connection.client()).address].name != leader:
        await connection.close()  # the next one is chosen at random
    return servers[(await connection.client()).address]


async def stream(connection: Connection) -> list[bytes]:
    found: list[bytes] = []
    last = int((await connection.api("STREAM.INFO.LOGS"))["state"]["last_seq"])
    for sequence in range(1, last + 1):
        answer = await connection.request("$JS.API.DIRECT.GET.LOGS", b'{"seq":%d}' % sequence)
        found += [answer.data] if answer.data else []
    return found
