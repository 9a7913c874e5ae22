"""The number of partitions changes, also while a program is killed during the change."""

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest

from broker.topology import Topology
from nats_logship.app.faults import VARIABLE
from nats_logship.client.bucket import write
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from nats_logship.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from tests.conftest import apply_topology
from tests.partitions import change_partitions
from tests.shipper.logs import Ship, append
from tests.shipper.publish.agents import judge_move
from tests.shipper.saved import saved_positions
from tests.support.suite import ask

pytestmark = pytest.mark.nats

DIES, MANY = "web02", 5
NEW = str(Subject.for_host(DIES, MANY))


@pytest.mark.parametrize("point", ["claimed", "left", "rebuilt", "snapshot_sending"])
async def test_an_agent_killed_in_a_change_of_partition_completes_it_later(
    connection: Connection, logs_url: str, ship: Ship, log: Path, tmp_path: Path, point: str
) -> None:
    environment = {VARIABLE: str(tmp_path)}
    process = ship(logs_url, "--file", log, "--once", host=DIES, environment=environment)
    assert await asyncio.to_thread(process.wait, 30) == 0
    await change_partitions(connection, MANY)

    (tmp_path / point).touch()
    append(log, b"two\n")
    process.start()
    assert await asyncio.to_thread(process.wait, 30) == -signal.SIGKILL
    process.start()
    assert await asyncio.to_thread(process.wait, 30) == 0

    pages = HostMessages(connection, DIES, 1).read_since(1, "LOGS")
    stored = {one.sequence: one async for page in pages for one in page}
    before, after = (one for one in stored.values() if one.origin and one.origin.sections)
    assert (before.subject, after.subject) == (str(Subject.for_host(DIES, 2)), NEW)
    judge_move(before, after, stored)


def test_positions_cover_each_stream_up_to_its_own_sequence(
    fresh_url: str, ship: Ship, log: Path
) -> None:
    apply_topology(fresh_url, Topology(partitions=2, stream_count=2))
    process = ship(fresh_url, "--file", log, "--once", host=DIES)
    assert process.wait(60) == 0
    ask(fresh_url, lambda one: write(one, CONFIG_BUCKET, PARTITIONS_KEY, b"1", 2))
    append(log, b"two\n")
    process.start()
    assert process.wait(60) == 0

    covered = ask(fresh_url, partial(saved_positions, host=DIES)).covered
    assert {name: one.sequence for name, one in covered.items()} == {
        name: ask(fresh_url, lambda one, n=name: one.api(f"STREAM.INFO.{n}"))["state"]["last_seq"]
        for name in ("LOGS_0", "LOGS_1")
    }
