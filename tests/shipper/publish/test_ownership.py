"""Positions are rebuilt from the stream, with or without what was saved."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.bucket import read
from broker.client.connection import Connection
from broker.wire.positions import Covered, Positions
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from broker.wire.subjects import Subject
from shipper.publish.messages import HostMessages
from shipper.publish.rounds import Round
from tests.shipper.publish.agents import PublishingAgent
from tests.shipper.saved import put

pytestmark = pytest.mark.nats

Make = Callable[..., Round]


async def take(
    connection: Connection, subject: Subject, saved: Positions | None, tag: str = "bbbbbbbb"
) -> PublishingAgent:
    """Take over where the broker has saved these positions, None: none at all."""
    await put(connection, subject.host, saved and saved.encode())
    return await PublishingAgent(connection, tag, host=subject.host).open()


async def fill(
    connection: Connection,
    subject: Subject,
    make: Make,
    rounds: int,
    start: int = 0,
    tag: str = "aaaaaaaa",
) -> Positions:
    """Publish rounds of 100 bytes of two files in turn, and return the positions that they leave."""
    await put(connection, subject.host, None)
    agent = await PublishingAgent(connection, tag, host=subject.host).open()
    for number in range(start, start + rounds):
        await agent.publish(
            make(str(agent.agent), 100 * number, b"123456789\n" * 10, f"f{number % 2}")
        )
    return agent.positions


async def test_lost_positions_are_rebuilt_from_thousands_of_headers(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    positions = await fill(connection, web01, make_round, 2300)

    ownership = await take(connection, web01, None)

    assert ownership.positions.files == positions.files
    assert {c.offset for c in ownership.positions.files.values()} == {229_900, 230_000}


@pytest.mark.parametrize("headers", [None, {"Status": "404"}, {"Status": "409"}])
async def test_a_strangers_message_does_not_pass_for_a_word_of_the_broker(
    connection: Connection, web01: Subject, make_round: Make, headers: dict[str, str] | None
) -> None:
    positions = await fill(connection, web01, make_round, 3)
    await connection.ask(str(web01), b"", headers)

    ownership = await take(connection, web01, None)

    assert ownership.positions.files == positions.files


async def test_headers_behind_an_older_snapshot_count(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    older = await fill(connection, web01, make_round, 3)
    newer = await fill(connection, web01, make_round, 4, start=3)

    ownership = await take(connection, web01, older)

    assert ownership.positions.files == newer.files


async def test_positions_of_a_stream_that_was_recreated_are_kept_and_its_sequence_is_not_believed(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    old = await fill(connection, web01, make_round, 2)
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api("STREAM.DELETE.LOGS")
    await connection.api("STREAM.CREATE.LOGS", config)
    new = await fill(connection, web01, make_round, 2, start=2, tag="cccccccc")
    assert new.covered["LOGS"].sequence == old.covered["LOGS"].sequence

    ownership = await take(connection, web01, old)

    assert {f: c.offset for f, c in ownership.positions.files.items()} == {"f0": 300, "f1": 400}


async def test_positions_whose_lines_have_expired_are_kept(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    saved = await fill(connection, web01, make_round, 3)
    await connection.api("STREAM.PURGE.LOGS")

    ownership = await take(connection, web01, saved)

    assert ownership.positions.files == saved.files


async def test_other_hosts_and_plain_clients_leave_no_trace_in_the_positions(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    await fill(connection, Subject.for_host("web02.example.net", 2), make_round, 2)
    await connection.ask(str(web01), b"hello\n")
    await connection.ask(str(web01), b"x", {"Log-Agent": "1-aaaaaaaa", "Log-Spans": "broken"})

    ownership = await take(connection, web01, None)

    assert ownership.positions.files == {}


async def test_reading_back_leaves_no_consumer_behind(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    await fill(connection, web01, make_round, 1)

    await take(connection, web01, None)

    assert (await connection.api("STREAM.INFO.LOGS"))["state"]["consumer_count"] == 0


@pytest.mark.parametrize("ends", [True, False], ids=["that ends", "that is killed"])
async def test_headers_that_another_agent_of_the_host_took_away_are_missed(
    connection: Connection, logs_url: str, web01: Subject, make_round: Make, ends: bool
) -> None:
    await fill(connection, web01, make_round, 2300)

    async def read_as_another() -> None:
        other = Connection([logs_url], "other")
        async for _ in HostMessages(other, "web01", 1).since(5, "LOGS"):
            if not ends:
                break
        await other.close()

    async def read(meanwhile: Callable[[], object]) -> int:
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
        await read(let_another_read)

    assert await read(lambda: None) == 2301


async def test_a_snapshot_that_retention_has_completed_counts_though_its_messages_are_gone(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    await put(connection, web01.host, None)
    agent = await PublishingAgent(connection, "aaaaaaaa", host=web01.host).open()
    await agent.publish(make_round(str(agent.agent), 0, b"123456789\n", "f0"))
    unheard = make_round(str(agent.agent), 10, b"123456789\n", "f0")
    stored = await connection.ask(str(web01), unheard.payload, unheard.headers)
    completed = agent.positions.advance([unheard.origin], int(stored["seq"]))
    await put(connection, web01.host, completed.encode())
    await connection.api("STREAM.PURGE.LOGS")
    # the shipper's own snapshots take nothing of it back
    for positions in (agent.positions, replace(agent.positions)):
        await agent.snapshots.write(positions)
        entry = await read(connection, POSITIONS_BUCKET, positions_key(web01.host))
        assert entry is not None
        assert Positions.decode(entry.value).files == completed.files

    await agent.publish(unheard)

    assert agent.lost == 1
    assert agent.positions.files == completed.files
    assert (await connection.api("STREAM.INFO.LOGS"))["state"]["messages"] == 1  # the claim


async def test_a_start_is_newer_than_an_agent_of_which_only_the_snapshot_is_left(
    connection: Connection, web01: Subject
) -> None:
    ahead = Positions(covered={"LOGS": Covered(1, "1900000000000-aaaaaaaa")})

    ownership = await take(connection, web01, ahead)

    assert str(ownership.agent) == "1900000000001-bbbbbbbb"
