"""The number of partitions changes: a host's lines go to another subject, each still once, in order, by one agent."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.app.exits import FencedError
from broker.client.connection import Connection
from broker.wire.message import Followed
from broker.wire.streams import StreamLayout, subjects_in
from broker.wire.subjects import Subject
from shipper.publish.messages import AgentId, HostMessages
from shipper.publish.rounds import Round
from tests.partitions import add_subjects, change_partitions
from tests.shipper.publish.agents import NOW, PublishingAgent
from tests.shipper.saved import put

pytestmark = pytest.mark.nats

Make = Callable[..., Round]
Stream = Callable[[], Awaitable[list[Any]]]
MANY = 5
OLD, NEW = (Subject.for_host("web01", partitions) for partitions in (2, MANY))


@pytest.fixture(autouse=True)
async def _takes_lines_of_both_numbers(connection: Connection) -> None:
    await add_subjects(connection, *subjects_in("LOGS", StreamLayout(MANY)))


async def change(
    connection: Connection, *who_hears: PublishingAgent, partitions: int = MANY
) -> None:
    """Change the number, and have agents hear of it now rather than seconds later."""
    await change_partitions(connection, partitions)
    for agent in who_hears:
        await agent.config.look()


async def start(connection: Connection, tag: str = "aaaaaaaa") -> PublishingAgent:
    return await PublishingAgent(connection, tag).open()


def round_of(make: Make, agent: PublishingAgent, number: int) -> Round:
    lines = b"".join(b"line %d.%d\n" % (number, n) for n in range(3))
    return make(str(agent.agent), 100 * number, lines)


def lines_of(messages: list[Any]) -> list[bytes]:
    return [message.lines for message in messages if message.lines]


async def test_a_running_agent_goes_over_between_two_rounds(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    agent = await start(connection)
    rounds = [round_of(make_round, agent, number) for number in range(4)]

    for number, r in enumerate(rounds):
        if number == 2:
            await change(connection, agent)
        await agent.publish(r)

    assert agent.lost == 1
    assert lines_of(await stream()) == [r.payload for r in rounds]
    pages = HostMessages(connection, "web01", 1).since(1, "LOGS")
    found = [message async for page in pages for message in page]
    at = [m.subject for m in found if m.origin and m.origin.sections]
    assert at == [str(OLD)] * 2 + [str(NEW)] * 2


async def test_the_claims_say_where_lines_have_moved_and_what_they_follow(
    connection: Connection, make_round: Make
) -> None:
    agent = await start(connection)
    await agent.publish(round_of(make_round, agent, 1))
    await change(connection, agent)
    await agent.publish(round_of(make_round, agent, 2))

    heads = {head.subject: head for head in await HostMessages(connection, "web01", 1).heads()}
    left = heads[str(OLD)]
    assert left.origin is not None
    assert left.origin.moved == NEW.partition
    pages = HostMessages(connection, "web01", 1).since(left.sequence + 1, "LOGS")
    found = [message async for page in pages for message in page]
    claim, first = found[-2:]
    assert claim.origin is not None
    assert (claim.subject, claim.origin.follows) == (
        str(NEW),
        (Followed(OLD.partition, left.sequence),),
    )
    assert first.origin is not None
    assert first.origin.sections


async def test_a_running_agent_says_so_where_retention_has_removed_all_of_its_messages(
    connection: Connection, make_round: Make
) -> None:
    agent = await start(connection)
    await agent.publish(round_of(make_round, agent, 1))
    await connection.api("STREAM.PURGE.LOGS")
    await change(connection, agent)
    await agent.publish(round_of(make_round, agent, 2))

    heads = {head.subject: head for head in await HostMessages(connection, "web01", 1).heads()}
    moved = {subject: head.origin.moved for subject, head in heads.items() if head.origin}
    assert moved == {str(OLD): NEW.partition, str(NEW): None}


async def test_a_stream_that_was_made_anew_with_fewer_partitions_hinders_nothing(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    agent = await start(connection)
    await change(connection, agent)
    await agent.publish(round_of(make_round, agent, 1))
    await connection.api("STREAM.PURGE.LOGS")
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api(
        "STREAM.UPDATE.LOGS", {**config, "subjects": list(subjects_in("LOGS", StreamLayout(2)))}
    )
    await change(connection, agent, partitions=2)
    r = round_of(make_round, agent, 2)

    await agent.publish(r)

    assert lines_of(await stream()) == [r.payload]


async def test_a_host_that_moves_back_says_so(connection: Connection, make_round: Make) -> None:
    agent = await start(connection)
    for number, partitions in enumerate((MANY, 2), 1):
        await agent.publish(round_of(make_round, agent, number))
        await change(connection, agent, partitions=partitions)
    await agent.publish(round_of(make_round, agent, 3))

    heads = {head.subject: head for head in await HostMessages(connection, "web01", 1).heads()}
    moved = {subject: head.origin.moved for subject, head in heads.items() if head.origin}
    assert moved == {str(OLD): None, str(NEW): OLD.partition}


@pytest.mark.parametrize("saved", [True, False], ids=["saved positions", "lost positions"])
async def test_an_agent_that_starts_after_the_change_knows_what_was_shipped_before(
    connection: Connection, make_round: Make, saved: bool
) -> None:
    agent = await start(connection)
    await agent.publish(round_of(make_round, agent, 1))

    await put(connection, "web01", agent.positions.encode() if saved else None)
    await change(connection)
    after = await start(connection, "bbbbbbbb")

    assert after.subject == NEW
    assert after.positions.files == agent.positions.files
    assert after.agent > agent.agent


@pytest.mark.parametrize("expired", [False, True], ids=["with its lines", "expired"])
@pytest.mark.parametrize("hears", [False, True], ids=["deaf", "that hears of it"])
async def test_an_older_agent_on_the_old_subject_is_fenced(
    connection: Connection, make_round: Make, stream: Stream, expired: bool, hears: bool
) -> None:
    older = await start(connection)
    await older.publish(round_of(make_round, older, 1))
    if expired:
        await connection.api("STREAM.PURGE.LOGS")
    await change(connection)
    newer = await start(connection, "bbbbbbbb")
    if hears:
        await older.config.look()

    with pytest.raises(FencedError, match=str(newer.agent)):
        await older.publish(round_of(make_round, older, 2))
    await newer.publish(round_of(make_round, newer, 3))

    assert len(lines_of(await stream())) == (1 if expired else 2)


async def test_a_claim_and_lines_of_an_older_agent_on_the_new_subject_hinder_nothing(
    connection: Connection, line: Any, make_round: Make, stream: Stream
) -> None:
    far = Connection([line.url], "test")
    agent = await start(far)
    late = make_round("1-ffffffff", 100, b"late\n", "f2")
    await connection.ask(str(NEW), late.payload, late.headers)
    await HostMessages(connection, "web01", 1).claim(NEW, AgentId(1, "ffffffff"), NOW)
    await change(connection, agent)
    r = round_of(make_round, agent, 1)
    line.cut_after = b'"seq"'

    await agent.publish(r)
    await far.close()

    assert line.seen == 1
    assert agent.has(late)
    assert lines_of(await stream()) == [late.payload, r.payload]


async def test_a_number_that_goes_to_and_fro_keeps_the_order(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    agent = await start(connection)
    rounds = [round_of(make_round, agent, number) for number in range(6)]

    for number, r in enumerate(rounds):
        await change(connection, agent, partitions=MANY if number % 2 else 2)
        await agent.publish(r)

    assert lines_of(await stream()) == [r.payload for r in rounds]
    after = await start(connection, "bbbbbbbb")
    assert {cursor.offset for cursor in after.positions.files.values()} == {527}


async def test_plain_clients_on_other_subjects_of_the_host_are_nobody(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    await add_subjects(connection, "logs.any.>")
    await connection.ask("logs.p4.web01", b"hello\n")
    await connection.ask("logs.any.web01", b"hello\n")
    agent = await start(connection)
    await change(connection, agent)
    r = round_of(make_round, agent, 1)

    await agent.publish(r)

    assert lines_of(await stream())[2:] == [r.payload]
