"""The number of partitions changes under programs that run: one lives on, one is killed in the midst of going over."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.app.faults import VARIABLE
from broker.client.connection import Connection
from broker.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from tests.partitions import change_partitions
from tests.shipper.logs import Ship

pytestmark = pytest.mark.nats

HOSTS = LIVES, DIES = "web01", "web02"
MANY = 5
NEW = str(Subject.for_host(DIES, MANY))


async def write_lines(folder: Path, until: asyncio.Event) -> None:
    number = 0
    while not until.is_set() or number < 100:
        for host in HOSTS:
            with (folder / f"{host}.log").open("ab") as log:
                log.write(b"%s %d\n" % (host.encode(), number))
        number += 1
        await asyncio.sleep(0.01)


async def holds(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not what():  # noqa: ASYNC110 - messages set no event
            await asyncio.sleep(0.02)


async def test_each_line_comes_once_and_in_order_though_one_is_killed_right_behind_its_claim(
    connection: Connection,
    logs_url: str,
    ship: Ship,
    tmp_path: Path,
    stream: Callable[[], Awaitable[list[Any]]],
) -> None:
    seen: set[str] = set()
    new = {host: str(Subject.for_host(host, MANY)) for host in HOSTS}
    running = {
        host: ship(logs_url, "--file", tmp_path / f"{host}.log", host=host) for host in HOSTS
    }

    async def hear(message: Any) -> None:
        if message.subject == new[DIES] and message.subject not in seen:
            os.kill(running[DIES].pid, signal.SIGKILL)
        seen.add(message.subject)

    await connection.subscribe("logs.*.*", hear)
    ending = asyncio.Event()
    writing = asyncio.create_task(write_lines(tmp_path, ending))
    await holds(lambda: len(seen) == 2)
    await change_partitions(connection, MANY)

    await holds(lambda: set(new.values()) <= seen)
    assert await asyncio.to_thread(running[DIES].wait, 10) == -signal.SIGKILL
    running[DIES].start()
    ending.set()
    await writing

    wanted = {host: (tmp_path / f"{host}.log").read_bytes() for host in HOSTS}
    got: dict[str, bytes] = {}
    async with asyncio.timeout(120):
        while sum(map(len, got.values())) < sum(map(len, wanted.values())):
            await asyncio.sleep(0.2)
            lines = b"".join(message.lines for message in await stream()).splitlines(keepends=True)
            got = {h: b"".join(x for x in lines if x.startswith(h.encode())) for h in HOSTS}
    assert got == wanted


@pytest.mark.parametrize("point", ["claimed", "left", "rebuilt", "snapshot_sending"])
async def test_an_agent_killed_on_its_way_to_another_partition_says_all_of_it_at_the_next_start(
    connection: Connection, logs_url: str, ship: Ship, tmp_path: Path, point: str
) -> None:
    log, faults = tmp_path / f"{DIES}.log", tmp_path / "faults"
    faults.mkdir()
    environment = {VARIABLE: str(faults)}
    process = ship(logs_url, "--file", log, "--once", host=DIES, environment=environment)
    log.write_bytes(b"line 1\n")
    assert await asyncio.to_thread(process.wait, 30) == 0
    await change_partitions(connection, MANY)

    (faults / point).touch()
    log.write_bytes(b"line 1\nline 2\n")
    process.start()
    assert await asyncio.to_thread(process.wait, 30) == -signal.SIGKILL
    process.start()
    assert await asyncio.to_thread(process.wait, 30) == 0

    messages = [
        one async for page in HostMessages(connection, DIES, 1).since(1, "LOGS") for one in page
    ]
    at = [(one, one.origin) for one in messages if one.origin is not None]
    left = [one for one, origin in at if origin.moved is not None]
    claims = [(one, origin) for one, origin in at if origin.follows]
    lines = [(one, origin) for one, origin in at if origin.sections]
    assert [one.subject for one, _ in lines] == [str(Subject.for_host(DIES, 2)), NEW]
    assert [origin.lines for _, origin in lines] == [1, 1]
    claim, origin = claims[-1]
    assert (claim.subject, origin.follows[0].sequence) == (NEW, left[-1].sequence)
    assert left[-1].sequence < claim.sequence < lines[-1][0].sequence
