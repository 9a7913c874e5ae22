"""Sessions in cases that the random programs of `test_publish_model.py` do not reach."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.topology import subjects_in
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.bucket import read, write
from nats_logship.client.connection import Connection
from nats_logship.wire.positions import Positions
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    StreamLayout,
    positions_key,
)
from nats_logship.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from tests.lagging import Lagging
from tests.partitions import add_subjects, change_partitions
from tests.shipper.conftest import read_stream, until, wait_for_lines
from tests.shipper.logs import Ship, append, wait_for_log
from tests.shipper.publish.agents import PublishingAgent, config_of, round_of, start
from tests.shipper.saved import put

pytestmark = pytest.mark.nats

MANY = 5  # partitions, of which web01 has another one than of 2
OLD, NEW = (Subject.for_host("web01", partitions) for partitions in (2, MANY))


async def fill(connection: Connection, rounds: int, tag: str = "aaaaaaaa") -> Positions:
    """Publish rounds, the agent itself only the last; return positions without a snapshot."""
    agent = await start(connection, tag)
    *foreign, last = (round_of(agent, number) for number in range(rounds))
    for r in foreign:
        await connection.publish(str(OLD), r.payload, "", r.headers)
    await agent.publish(last)
    await put(connection, None)
    return agent.positions


async def stored(connection: Connection) -> list[bytes]:
    """Return the lines of each message that has some."""
    return [message.lines for message in await read_stream(connection) if message.lines]


@pytest.mark.parametrize(
    "headers",
    [{"Status": "404"}, {"Status": "409"}, {"Log-Agent": "1-aaaaaaaa", "Log-Spans": "broken"}],
)
async def test_another_clients_message_is_not_taken_for_ours_or_the_brokers(
    connection: Connection, headers: dict[str, str]
) -> None:
    positions = await fill(connection, 3)
    await connection.ask(str(OLD), b"", headers)

    assert (await start(connection, "bbbbbbbb")).positions.files == positions.files


async def test_positions_of_a_recreated_stream_are_kept_without_their_sequence(
    connection: Connection,
) -> None:
    old = await fill(connection, 4)
    config = await config_of(connection)
    await connection.api("STREAM.DELETE.LOGS")
    await connection.api("STREAM.CREATE.LOGS", config)
    new = await fill(connection, 4, tag="cccccccc")
    assert new.covered["LOGS"].sequence == old.covered["LOGS"].sequence
    ahead = {name: replace(one, offset=one.offset + 1) for name, one in old.files.items()}
    await put(connection, replace(old, files=ahead).encode())

    assert (await start(connection, "dddddddd")).positions.files == ahead


@pytest.mark.parametrize("ends", [True, False], ids=["that ends", "that is killed"])
async def test_headers_that_another_agent_of_the_host_consumed_are_missed(
    connection: Connection, logs_url: str, ends: bool
) -> None:
    positions = await fill(connection, 2300)

    other = Connection([logs_url], "other")
    own, others = (HostMessages(c, "web01", 1).read_since(1, "LOGS") for c in (connection, other))

    first = await anext(own)
    await anext(others)
    if ends:
        assert [len(page) async for page in others] == [302]
    with pytest.raises((ConnectionLost, Rejected)):
        [page async for page in own]
    await other.close()

    assert len(first) == 2000
    after = await start(connection, "bbbbbbbb")
    assert after.positions.files == positions.files
    assert {c.offset for c in after.positions.files.values()} == {229_900, 230_000}


async def test_a_snapshot_completed_by_retention_counts_after_the_purge(
    connection: Connection,
) -> None:
    agent = await start(connection)
    await agent.publish(round_of(agent, 0))
    foreign = round_of(agent, 2)
    sequence = (await connection.ask(str(OLD), foreign.payload, foreign.headers))["seq"]
    completed = agent.positions.advance([foreign.origin], int(sequence))
    await put(connection, completed.encode())
    await connection.api("STREAM.PURGE.LOGS")
    # later snapshots of the shipper keep these positions
    for positions in (agent.positions, replace(agent.positions)):
        await agent.snapshots.write(positions)
        entry = await read(connection, POSITIONS_BUCKET, positions_key("web01"))
        assert entry is not None
        assert Positions.decode(entry.value).files == completed.files

    await agent.publish(foreign)

    assert agent.lost == 1
    assert agent.positions.files == completed.files
    assert (await connection.api("STREAM.INFO.LOGS"))["state"]["messages"] == 1  # the claim


async def change(connection: Connection, agent: PublishingAgent, partitions: int = MANY) -> None:
    """Change the number of partitions, and have an agent read it now."""
    await add_subjects(connection, *subjects_in("LOGS", StreamLayout(partitions)))
    await change_partitions(connection, partitions)
    await agent.config.read()


async def test_a_stream_with_fewer_partitions_than_before_takes_rounds(
    connection: Connection,
) -> None:
    agent = await start(connection)
    await change(connection, agent)
    await agent.publish(round_of(agent, 1))
    await connection.api("STREAM.PURGE.LOGS")
    fewer = {"subjects": list(subjects_in("LOGS", StreamLayout(2)))}
    await connection.api("STREAM.UPDATE.LOGS", await config_of(connection) | fewer)
    await change(connection, agent, partitions=2)
    r = round_of(agent, 2)

    await agent.publish(r)

    assert await stored(connection) == [r.payload]


async def test_an_older_number_of_partitions_from_a_replica_is_ignored(logs_url: str) -> None:
    replica = Lagging([logs_url], "test")
    config = (await start(replica)).config
    entry = await read(replica, CONFIG_BUCKET, PARTITIONS_KEY)
    assert entry is not None
    await replica.remember(f"KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}.{PARTITIONS_KEY}")
    await write(replica, CONFIG_BUCKET, PARTITIONS_KEY, b"5", entry.revision)
    await config.read()
    assert config.subject == NEW

    replica.lags = 1
    await config.read()
    await replica.close()

    assert config.subject == NEW


@pytest.fixture
def ship(ship: Ship, log: Path) -> Ship:
    return lambda url, *options: ship(url, "--file", log, *options)


def test_a_lower_payload_limit_divides_rounds_and_long_lines(
    own_broker: Any, ship: Ship, log: Path, tmp_path: Path
) -> None:
    process = ship(own_broker.url, "--compression", "none", "--max-line", "2MiB")
    wait_for_lines(own_broker.url, b"one\n")
    own_broker.stop()
    take_at_a_time("256KB", tmp_path)
    lines = (
        b"".join(b"%07d %s\n" % (n, b"x" * 1000) for n in range(2000)) + b"y" * 1_500_000 + b"\n"
    )
    append(log, lines)
    # one round was gathered with the old limit
    wait_for_log(process, "broker away")
    own_broker.start()

    wait_for_lines(own_broker.url, b"one\n" + lines)
    assert process.stop(10) == 0


def take_at_a_time(most: str, folder: Path) -> None:
    """Have the test's own server accept only smaller messages after its next start."""
    configuration = folder / "own-server/nats-server.conf"
    configuration.write_text(configuration.read_text().replace("8MB", most))


def test_a_snapshot_that_is_too_large_for_the_broker_is_logged(
    own_broker: Any, ship: Ship, tmp_path: Path
) -> None:
    own_broker.stop()
    take_at_a_time("64KB", tmp_path)
    own_broker.start()
    for number in range(2000):
        name = random.Random(number).randbytes(60).hex()  # which cannot be compressed
        (tmp_path / f"{name}.log").write_bytes(b"%d\n" % number)

    process = ship(own_broker.url, "--file", str(tmp_path / "*.log"))

    wait_for_log(process, "more than the broker accepts")
    assert process.stop(10) == 0


async def fill_up(connection: Connection) -> None:
    await connection.api("STREAM.UPDATE.LOGS", await config_of(connection) | {"max_bytes": 2000})


@pytest.mark.parametrize(
    ("spoil", "mend", "text", "kept"),
    [
        pytest.param(fill_up, "UPDATE", "the broker is full", 8, id="full"),
        pytest.param(
            lambda connection: connection.api("STREAM.DELETE.LOGS"),
            *("CREATE", "run `logbroker apply`", 7),
            id="deleted",
        ),
    ],
)
async def test_rounds_follow_in_order_once_a_full_or_missing_stream_is_back(
    connection: Connection,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Connection], Awaitable[object]],
    mend: str,
    text: str,
    kept: int,
) -> None:
    agent = await start(connection)
    rounds = [round_of(agent, n) for n in range(8)]
    await agent.publish(rounds[0])
    config = await config_of(connection)
    await spoil(connection)

    async def publish_all() -> None:
        for r in rounds[1:]:
            await agent.publish(r)

    caplog.set_level("INFO")
    publishing = asyncio.create_task(publish_all())
    await until(lambda: text in caplog.text)
    again = agent.retries.total() + 2
    await until(lambda: agent.retries.total() >= again)
    assert not publishing.done()
    await connection.api(f"STREAM.{mend}.LOGS", config)
    await publishing

    assert await stored(connection) == [r.payload for r in rounds[-kept:]]
    assert len([m for m in caplog.messages if text in m]) == 1
    assert [m for m in caplog.messages if "resumed" in m]
