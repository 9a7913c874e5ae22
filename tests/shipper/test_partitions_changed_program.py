"""The number of partitions changes, and a program is killed in the midst of going over."""

import asyncio
import signal
from pathlib import Path

import pytest

from broker.app.faults import VARIABLE
from broker.client.bucket import write
from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from broker.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from tests.conftest import apply_topology
from tests.partitions import change_partitions
from tests.shipper.logs import Ship, append
from tests.shipper.saved import Saved, on
from tests.support.processes import wait_until

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


def test_an_agent_that_goes_over_to_another_stream_covers_each_by_its_own_sequence(
    fresh_url: str, ship: Ship, tmp_path: Path
) -> None:
    apply_topology(fresh_url, Topology(partitions=2, stream_count=2))
    log = tmp_path / "a.log"
    process = ship(fresh_url, "--file", log, host=DIES)

    def last() -> dict[str, int]:
        ask = lambda name: on(fresh_url, lambda one: one.api(f"STREAM.INFO.{name}"))  # noqa: E731
        return {name: ask(name)["state"]["last_seq"] for name in ("LOGS_0", "LOGS_1")}

    def goes_on(stream: str, until: int) -> None:
        def is_there() -> bool:
            append(log, b"line\n")
            return last()[stream] >= until

        wait_until("it ships", is_there, 60, [process], every=0.3)

    goes_on("LOGS_1", 6)
    on(fresh_url, lambda one: write(one, CONFIG_BUCKET, PARTITIONS_KEY, b"1", 2))
    goes_on("LOGS_0", 6)

    assert process.stop(12) == 0
    covered = Saved(fresh_url, DIES).positions().covered
    assert {name: one.sequence for name, one in covered.items()} == last()
