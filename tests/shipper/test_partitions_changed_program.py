"""The number of partitions changes, and a program is killed in the midst of going over."""

import asyncio
import signal
from pathlib import Path

import pytest

from broker.app.faults import VARIABLE
from broker.client.connection import Connection
from broker.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from tests.partitions import change_partitions
from tests.shipper.logs import Ship

pytestmark = pytest.mark.nats

DIES, MANY = "web02", 5
NEW = str(Subject.for_host(DIES, MANY))


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
