"""What ends a session or gets in its way, case by case, where the random programs of `test_publish_model.py` do not come."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.bucket import read, write
from broker.client.connection import Connection
from broker.wire.positions import Positions
from broker.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    StreamLayout,
    positions_key,
    subjects_in,
)
from broker.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from tests.lagging import Lagging
from tests.partitions import add_subjects, change_partitions
from tests.shipper.publish.agents import (
    PublishingAgent,
    Stored,
    config_of,
    round_of,
    start,
)
from tests.shipper.saved import put

pytestmark = pytest.mark.nats

MANY = 5  # partitions, of which web01 has another one than of 2
OLD, NEW = (Subject.for_host("web01", partitions) for partitions in (2, MANY))


async def fill(connection: Connection, rounds: int, tag: str = "aaaaaaaa") -> Positions:
    """Publish rounds, all but the last unheard; return the positions that they leave, of which no snapshot is left."""
    agent = await start(connection, tag)
    *unheard, last = (round_of(agent, number) for number in range(rounds))
    for r in unheard:
        await connection.publish(str(OLD), r.payload, "", r.headers)
    await agent.publish(last)
    await put(connection, "web01", None)
    return agent.positions


# the positions


@pytest.mark.parametrize(
    "headers",
    [{"Status": "404"}, {"Status": "409"}, {"Log-Agent": "1-aaaaaaaa", "Log-Spans": "broken"}],
)
async def test_a_strangers_message_passes_neither_for_ours_nor_for_a_word_of_the_broker(
    connection: Connection, headers: dict[str, str]
) -> None:
    positions = await fill(connection, 3)
    await connection.ask(str(OLD), b"", headers)

    assert (await start(connection, "bbbbbbbb")).positions.files == positions.files


async def test_positions_of_a_stream_made_anew_are_kept_and_its_sequence_is_not_believed(
    connection: Connection,
) -> None:
    old = await fill(connection, 4)
    config = await config_of(connection)
    await connection.api("STREAM.DELETE.LOGS")
    await connection.api("STREAM.CREATE.LOGS", config)
    new = await fill(connection, 4, tag="cccccccc")
    assert new.covered["LOGS"].sequence == old.covered["LOGS"].sequence
    ahead = {name: replace(one, offset=one.offset + 1) for name, one in old.files.items()}
    await put(connection, "web01", replace(old, files=ahead).encode())

    assert (await start(connection, "dddddddd")).positions.files == ahead


@pytest.mark.parametrize("ends", [True, False], ids=["that ends", "that is killed"])
async def test_headers_that_another_agent_of_the_host_took_away_are_missed(
    connection: Connection, logs_url: str, ends: bool
) -> None:
    positions = await fill(connection, 2300)

    async def read_as_another() -> None:
        other = Connection([logs_url], "other")
        async for _ in HostMessages(other, "web01", 1).since(5, "LOGS"):
            if not ends:
                break
        await other.close()

    async def read_all(meanwhile: Callable[[], object]) -> int:
        count = 0
        async for page in HostMessages(connection, "web01", 1).since(1, "LOGS"):
            if not count:
                meanwhile()
            count += len(page)
        return count

    def let_another_read() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(read_as_another()))
        thread.start()
        thread.join()

    with pytest.raises((ConnectionLost, Rejected)):
        await read_all(let_another_read)

    assert await read_all(lambda: None) == 2302
    after = await start(connection, "bbbbbbbb")
    assert after.positions.files == positions.files
    assert {c.offset for c in after.positions.files.values()} == {229_900, 230_000}


async def test_a_snapshot_that_retention_has_completed_counts_though_its_messages_are_gone(
    connection: Connection,
) -> None:
    agent = await start(connection)
    await agent.publish(round_of(agent, 0))
    unheard = round_of(agent, 2)
    sequence = (await connection.ask(str(OLD), unheard.payload, unheard.headers))["seq"]
    completed = agent.positions.advance([unheard.origin], int(sequence))
    await put(connection, "web01", completed.encode())
    await connection.api("STREAM.PURGE.LOGS")
    # the shipper's own snapshots take nothing of it back
    for positions in (agent.positions, replace(agent.positions)):
        await agent.snapshots.write(positions)
        entry = await read(connection, POSITIONS_BUCKET, positions_key("web01"))
        assert entry is not None
        assert Positions.decode(entry.value).files == completed.files

    await agent.publish(unheard)

    assert agent.lost == 1
    assert agent.positions.files == completed.files
    assert (await connection.api("STREAM.INFO.LOGS"))["state"]["messages"] == 1  # the claim


# another number of partitions


async def change(connection: Connection, agent: PublishingAgent, partitions: int = MANY) -> None:
    """Change the number, and have an agent hear of it now rather than seconds later."""
    await add_subjects(connection, *subjects_in("LOGS", StreamLayout(partitions)))
    await change_partitions(connection, partitions)
    await agent.config.read()


async def test_a_stream_that_was_made_anew_with_fewer_partitions_hinders_nothing(
    connection: Connection, stored: Stored
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

    assert await stored() == [r.payload]


async def test_a_number_of_partitions_that_was_does_not_come_back(logs_url: str) -> None:
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
