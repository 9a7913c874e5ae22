"""The number of partitions changes: a host's lines go to another subject, each still once, in order, by one agent."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bench.processes import Process, Processes
from broker.app.exits import FencedError
from broker.client.connection import Connection
from broker.wire.streams import CONFIG_BUCKET, subjects_of
from broker.wire.subjects import Subject
from shipper.positions import Positions
from shipper.publish.claim import Ownership, OwnershipLost, Registry, take_over
from shipper.publish.publisher import Publisher
from shipper.publish.rebuild import ReadBack
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.stored import AgentId, Stored
from shipper.publish.subject import HostSubject
from shipper.publish.waiting import Waiting
from tests.partitions import add_subjects, change_partitions
from tests.shipper.saved import put

pytestmark = pytest.mark.nats

Make = Callable[..., Round]
Stream = Callable[[], Awaitable[list[Any]]]
MANY = 5
OLD, NEW = (Subject.for_host("web01", partitions) for partitions in (2, MANY))
SECONDS = 1_700_000_000
HEADINGS: list[HostSubject] = []


def clock() -> int:
    return SECONDS * 1_000_000_000


@pytest.fixture(autouse=True)
async def _takes_lines_of_both_numbers(connection: Connection) -> None:
    HEADINGS.clear()
    await add_subjects(connection, *subjects_of(MANY))


async def change(connection: Connection, partitions: int = MANY) -> None:
    """Change the number, and have those who ask all the time hear of it now rather than a round later."""
    await change_partitions(connection, partitions)
    for host_subject in HEADINGS:
        await host_subject.ask()


async def own(
    connection: Connection,
    subject: Subject = OLD,
    tag: str = "aaaaaaaa",
    ask_every: float = 0.0,
) -> tuple[Publisher, Ownership]:
    registry, waiting = Registry(connection, subject), Waiting()
    ownership = await take_over(
        registry, Snapshots(connection, subject.host), Positions(), tag, clock, waiting
    )
    host_subject = HostSubject(connection, subject, ask_every)
    if not ask_every:
        HEADINGS.append(host_subject)
    return Publisher(connection, registry, ownership, host_subject, waiting, "none"), ownership


def round_of(make: Make, owner: Ownership, number: int) -> Round:
    lines = b"".join(b"line %d.%d\n" % (number, n) for n in range(3))
    return make(str(owner.agent), 100 * number, lines)


def lines_of(messages: list[Any]) -> list[bytes]:
    return [message.lines for message in messages if message.lines]


def test_the_host_of_these_tests_changes_its_subject() -> None:
    assert OLD != NEW


async def test_a_running_agent_goes_over_between_two_rounds(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection)
    rounds = [round_of(make_round, owner, number) for number in range(4)]

    for number, r in enumerate(rounds):
        if number == 2:
            await change(connection)
        await publisher.publish(r)

    assert lines_of(await stream()) == [r.payload for r in rounds]
    found: list[Stored] = []
    await ReadBack(connection, "web01").since(1, found.extend)
    at = [m.subject for m in found if m.origin and not m.origin.is_claim]
    assert at == [str(OLD)] * 2 + [str(NEW)] * 2


async def test_a_bucket_that_is_away_changes_nothing(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection)
    await connection.api(f"STREAM.DELETE.KV_{CONFIG_BUCKET}")
    r = round_of(make_round, owner, 1)

    await publisher.publish(r)

    assert lines_of(await stream()) == [r.payload]


@pytest.mark.parametrize("saved", [True, False], ids=["saved positions", "lost positions"])
async def test_an_agent_that_starts_after_the_change_knows_what_was_shipped_before(
    connection: Connection, make_round: Make, saved: bool
) -> None:
    publisher, owner = await own(connection)
    r = round_of(make_round, owner, 1)
    positions = owner.positions.advance([r.origin], await publisher.publish(r))

    await put(connection, "web01", positions.encode() if saved else None)
    _, after = await own(connection, NEW, "bbbbbbbb")

    assert after.positions.files == positions.files
    assert after.agent > owner.agent


async def test_an_older_agent_on_the_old_subject_is_fenced(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    older, first = await own(connection, ask_every=1000)
    await older.publish(round_of(make_round, first, 1))
    newer, second = await own(connection, NEW, "bbbbbbbb")
    await change(connection)

    with pytest.raises(FencedError, match=str(second.agent)):
        await older.publish(round_of(make_round, first, 2))
    await newer.publish(round_of(make_round, second, 3))

    assert len(lines_of(await stream())) == 2


async def test_an_older_agent_whose_subject_has_expired_is_fenced_all_the_same(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    older, first = await own(connection, ask_every=1000)
    await connection.api("STREAM.PURGE.LOGS")
    _, second = await own(connection, NEW, "bbbbbbbb")

    with pytest.raises(FencedError, match=str(second.agent)):
        await older.publish(round_of(make_round, first, 2))

    assert lines_of(await stream()) == []


async def test_an_older_agent_that_goes_over_finds_the_newer_one_there(
    connection: Connection, make_round: Make
) -> None:
    older, first = await own(connection)
    await connection.api("STREAM.PURGE.LOGS")
    _, second = await own(connection, NEW, "bbbbbbbb")
    await change(connection)

    with pytest.raises(FencedError, match=str(second.agent)):
        await older.publish(round_of(make_round, first, 2))


async def test_lines_that_came_to_the_new_subject_meanwhile_make_an_agent_start_over(
    connection: Connection, make_round: Make
) -> None:
    ghost, first = await own(connection, NEW, "00000000", ask_every=1000)
    await connection.api("STREAM.PURGE.LOGS")
    newer, second = await own(connection)
    await connection.ask(str(OLD), b"hello\n")
    # it has not heard of the newer one, since nothing of its own is left
    late = round_of(make_round, first, 1)
    await connection.ask(str(NEW), late.payload, late.headers)
    await change(connection)

    with pytest.raises(OwnershipLost, match=str(first.agent)):
        await newer.publish(round_of(make_round, second, 2))
    assert ghost is not None


async def test_a_claim_of_an_older_agent_on_the_new_subject_hinders_nothing(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection)
    await Registry(connection, NEW).claim(AgentId(1, "ffffffff"), clock())
    await change(connection)
    r = round_of(make_round, owner, 1)

    await publisher.publish(r)

    assert lines_of(await stream()) == [r.payload]


async def test_lines_on_the_new_subject_are_seen_though_the_answer_to_the_claim_on_it_was_lost(
    connection: Connection, line: Any, make_round: Make
) -> None:
    far = Connection([line.url], "test")
    newer, second = await own(far)
    late = make_round("1-ffffffff", 100, b"late\n")
    await connection.ask(str(NEW), late.payload, late.headers)
    await change(connection)
    line.cut_after = b'"seq"'

    with pytest.raises(OwnershipLost, match="1-ffffffff"):
        await newer.publish(round_of(make_round, second, 2))
    assert line.seen == 1
    await far.close()


async def test_a_number_that_goes_to_and_fro_keeps_the_order(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection)
    rounds = [round_of(make_round, owner, number) for number in range(6)]

    for number, r in enumerate(rounds):
        await change(connection, MANY if number % 2 else 2)
        await publisher.publish(r)

    assert lines_of(await stream()) == [r.payload for r in rounds]
    _, after = await own(connection, NEW, "bbbbbbbb")
    assert {cursor.offset for cursor in after.positions.files.values()} == {527}


async def test_plain_clients_on_other_subjects_of_the_host_are_nobody(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    await add_subjects(connection, "logs.any.>")
    await connection.ask("logs.p4.web01", b"hello\n")
    await connection.ask("logs.any.web01", b"hello\n")
    publisher, owner = await own(connection)
    await change(connection)
    r = round_of(make_round, owner, 1)

    await publisher.publish(r)

    assert lines_of(await stream())[2:] == [r.payload]


def test_two_runs_with_a_change_between_ship_every_line_once(
    logs_url: str,
    processes: Processes,
    tmp_path: Path,
    read_back: Callable[[str], bytes],
) -> None:
    log, lines = tmp_path / "a.log", b"".join(b"line %d\n" % number for number in range(2000))

    def ship(state: str) -> None:
        options = ["--server", logs_url, "--host", "web01", "--file", str(log), "--once"]
        process: Process = processes.start(
            f"shipper-{state}",
            [sys.executable, "-m", "shipper", *options],
            folder=Path(__file__).parents[3],
        )
        assert process.wait(90) == 0, process.last_words()

    async def more_partitions() -> None:
        connection = Connection([logs_url], "test")
        await change(connection)
        await connection.close()

    log.write_bytes(lines[:9000])
    ship("state")
    asyncio.run(more_partitions())
    log.write_bytes(lines)
    ship("state")
    ship("lost")

    assert read_back(logs_url) == lines
