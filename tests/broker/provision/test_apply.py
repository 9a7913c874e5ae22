import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bench.processes import wait_until
from broker.app.exits import ConfigurationError
from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.provision.apply import apply, consumers_of
from broker.provision.steps import Action, Change, Plan
from broker.topology import Topology
from broker.wire.streams import STREAM
from broker.wire.subjects import Subject
from tests.conftest import Server

pytestmark = pytest.mark.nats


@pytest.fixture
async def connection(fresh_url: str) -> AsyncIterator[Connection]:
    connection = Connection([fresh_url], "test")
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    "topology",
    [
        Topology(partitions=2),
        Topology(partitions=1, max_age=timedelta(seconds=30)),
        Topology(partitions=1, max_bytes=10**6, discard="old"),
        Topology(partitions=300),  # more than a page of the server's list
    ],
    ids=["plain", "short age", "bounded", "many"],
)
async def test_what_was_applied_is_what_a_real_server_tells(
    connection: Connection, topology: Topology
) -> None:
    await apply(connection, topology)

    assert await apply(connection, topology) == Plan(())
    assert len(await consumers_of(connection, STREAM)) == topology.partitions
    entry = await bucket.read(connection, "LOGS_CONFIG", "partitions")
    assert entry is not None
    assert entry.value.decode() == str(topology.partitions)


async def test_a_stream_that_takes_atomic_batches_is_named_in_the_plan_and_takes_none_afterwards(
    connection: Connection,
) -> None:
    batch = {"Nats-Batch-Id": "1", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    await apply(connection, Topology(partitions=1))
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api("STREAM.UPDATE.LOGS", {**config, "allow_atomic": True})
    await connection.ask("logs.p0.web01", b"taken\n", batch)

    (step,) = (await apply(connection, Topology(partitions=1))).steps

    assert (step.name, step.changes) == ("LOGS", (Change("allow_atomic", True, False),))
    with pytest.raises(Rejected, match="atomic publish"):
        await connection.ask("logs.p0.web01", b"refused\n", batch)


def test_a_server_that_is_slow_is_waited_for(own_server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as beside:
        applying = beside.submit(asyncio.run, applied(own_server.url, Topology(partitions=200)))
        is_one_made = lambda: any(tmp_path.rglob("obs/receiver-p*"))  # noqa: E731
        wait_until("a consumer is being made", is_one_made, 60, every=0.001)

        os.kill(own_server.process.pid, signal.SIGSTOP)
        time.sleep(7)  # more than the five seconds that a question may take
        os.kill(own_server.process.pid, signal.SIGCONT)

        assert applying.result() == 200


async def applied(url: str, topology: Topology) -> int:
    """Apply it, and return how many consumers there are then."""
    connection = Connection([url], "test")
    try:
        await apply(connection, topology)
        return len(await consumers_of(connection, STREAM))
    finally:
        await connection.close()


async def test_a_changed_topology_is_updated_and_loses_no_line(connection: Connection) -> None:
    first = Topology(partitions=2)
    await apply(connection, first)
    await connection.ask("logs.p0.web01", b"line\n")
    changed = replace(first, max_age=timedelta(hours=2), max_bytes=10**6, discard="old")

    done = await apply(connection, changed)

    assert [(step.action, step.name) for step in done.steps] == [(Action.UPDATE, "LOGS")]
    assert (await connection.api("STREAM.INFO.LOGS"))["state"]["messages"] == 1
    assert await apply(connection, changed) == Plan(())


async def test_a_refused_plan_changes_nothing_at_all(connection: Connection) -> None:
    await apply(connection, Topology(partitions=2))
    await connection.ask("logs.p0.web01", b"line\n")

    with pytest.raises(ConfigurationError, match="logbroker partitions 5"):
        await apply(connection, Topology(partitions=5, max_age=timedelta(hours=1)))

    assert await apply(connection, Topology(partitions=2)) == Plan(())


async def test_an_empty_stream_may_change_its_number_of_partitions(connection: Connection) -> None:
    await apply(connection, Topology(partitions=3))

    await apply(connection, Topology(partitions=2))

    entry = await bucket.read(connection, "LOGS_CONFIG", "partitions")
    assert entry is not None
    assert entry.value == b"2"
    assert not (await apply(connection, Topology(partitions=2))).steps


async def test_a_stream_of_memory_is_refused_with_the_way_round(connection: Connection) -> None:
    await connection.api(
        "STREAM.CREATE.LOGS", {"name": "LOGS", "subjects": ["logs.>"], "storage": "memory"}
    )

    with pytest.raises(ConfigurationError, match="storage is memory"):
        await apply(connection, Topology())


async def test_subjects_that_another_stream_has_are_one_line(connection: Connection) -> None:
    await connection.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["logs.>"]})

    with pytest.raises(ConfigurationError, match=r"refuses to create stream LOGS: .*overlap"):
        await apply(connection, Topology())


@pytest.mark.parametrize(
    ("topology", "way_round"),
    [
        (Topology(max_bytes=10**12), "lower --max-bytes, or raise --max-store"),
        (Topology(replicas=3), "run three servers as a cluster"),
    ],
    ids=["more than the store", "replicas alone"],
)
async def test_settings_that_no_restart_mends_are_refused_as_a_configuration(
    connection: Connection, topology: Topology, way_round: str
) -> None:
    with pytest.raises(ConfigurationError, match=way_round):
        await apply(connection, topology)


async def test_a_broker_that_lacks_the_bucket_of_positions_gets_it_and_nothing_else_changes(
    connection: Connection,
) -> None:
    await apply(connection, Topology(partitions=2))
    await connection.ask("logs.p0.web01", b"line\n")
    await connection.api("STREAM.DELETE.KV_LOGS_POSITIONS")

    done = await apply(connection, Topology(partitions=2))

    assert [(step.action, step.name) for step in done.steps] == [
        (Action.CREATE, "KV_LOGS_POSITIONS")
    ]
    assert await bucket.write(connection, "LOGS_POSITIONS", "web01", b"{}", 0) == 1


async def test_a_damaged_number_of_partitions_is_mended_under_stored_lines(
    connection: Connection,
) -> None:
    await apply(connection, Topology(partitions=3))
    subject = Subject.for_host("web01", 3)
    await connection.ask(str(subject), b"line\n")
    await connection.ask("$KV.LOGS_CONFIG.partitions", b"\x03\xff")

    await apply(connection, Topology(partitions_told=False))

    entry = await bucket.read(connection, "LOGS_CONFIG", "partitions")
    assert entry is not None
    assert entry.value == b"3"


async def test_a_number_of_partitions_that_is_gone_is_that_of_the_stored_lines(
    connection: Connection,
) -> None:
    await apply(connection, Topology(partitions=3))
    for host in ("web01", "web02", "db", "mail"):
        await connection.ask(str(Subject.for_host(host, 3)), b"line\n")
    await connection.api("STREAM.DELETE.KV_LOGS_CONFIG")
    for number in range(3):
        await connection.api(f"CONSUMER.DELETE.LOGS.receiver-p{number}")

    await apply(connection, Topology(partitions_told=False))

    entry = await bucket.read(connection, "LOGS_CONFIG", "partitions")
    assert entry is not None
    assert entry.value == b"3"
