"""An older agent's claim comes late: the newer one claims again and goes on, whatever was stored meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.app.exits import FencedError
from broker.client.connection import Connection
from broker.wire.subjects import Subject
from shipper.publish.messages import AgentId, HostMessages
from shipper.publish.rounds import Round
from shipper.publish.session import SessionLost
from tests.partitions import add_subjects
from tests.shipper.publish.agents import NOW, PublishingAgent

pytestmark = pytest.mark.nats

Make = Callable[..., Round]
Stream = Callable[[], Awaitable[list[Any]]]
GHOST = AgentId(1, "ffffffff")
EXPECTED = "Nats-Expected-Last-Subject-Sequence"


def round_of(make: Make, agent: AgentId, number: int) -> Round:
    lines = b"".join(b"line %d.%03d\n" % (number, n) for n in range(3))
    return make(str(agent), 1000 * number, lines, f"f-{agent.tag}")


async def store(connection: Connection, subject: Subject, round_: Round, expected: int) -> int:
    """Store a round as its publisher does, but let nobody hear of it."""
    headers = {EXPECTED: str(expected)}
    answer = await connection.ask(str(subject), round_.payload, round_.headers | headers)
    return int(answer["seq"])


async def haunt(connection: Connection, subject: Subject) -> int:
    return await HostMessages(connection, "web01", 1).claim(subject, GHOST, NOW)


def lines_of(messages: list[Any]) -> list[bytes]:
    return [message.lines for message in messages if message.lines]


@pytest.mark.parametrize("cut", [False, True], ids=["at once", "its answer lost"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored before"])
async def test_a_round_is_stored_once_and_the_older_agent_is_kept_out(
    connection: Connection,
    line: Any,
    web01: Subject,
    make_round: Make,
    stream: Stream,
    is_stored: bool,
    cut: bool,
) -> None:
    far = Connection([line.url], "test")
    agent = await PublishingAgent(far).open()
    rounds = [round_of(make_round, agent.agent, number) for number in range(4)]
    last = await agent.publish(rounds[0])
    if is_stored:
        await store(connection, web01, rounds[1], last)
    claim = await haunt(connection, web01)
    line.cut_after = b'"seq"' if cut else b""

    for r in rounds[1:]:
        await agent.publish(r)
    await far.close()

    assert line.seen == cut
    assert lines_of(await stream()) == [r.payload for r in rounds]
    with pytest.raises(Exception, match="wrong last sequence"):
        await store(connection, web01, round_of(make_round, GHOST, 9), claim)


async def test_lines_of_the_older_agent_are_known_behind_the_second_claim(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    agent = await PublishingAgent(connection).open()
    late = round_of(make_round, GHOST, 1)
    await store(connection, web01, late, await haunt(connection, web01))
    r = round_of(make_round, agent.agent, 1)

    await agent.publish(r)

    assert lines_of(await stream()) == [late.payload, r.payload]
    assert agent.has(late)


async def test_a_subject_that_the_older_agent_claimed_elsewhere_is_taken_as_well(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    agent = await PublishingAgent(connection).open()
    other = Subject.for_host("web01", 5)
    await add_subjects(connection, str(other))
    await haunt(connection, web01)
    claim = await haunt(connection, other)
    r = round_of(make_round, agent.agent, 1)

    await agent.publish(r)
    with pytest.raises(Exception, match="wrong last sequence"):
        await store(connection, other, round_of(make_round, GHOST, 9), claim)

    assert lines_of(await stream()) == [r.payload]


@pytest.mark.parametrize("where", [2, 5], ids=["on the own subject", "on another one"])
async def test_a_newer_agent_that_came_before_the_late_claim_wins(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream, where: int
) -> None:
    agent = await PublishingAgent(connection).open()
    messages, newer = (
        HostMessages(connection, "web01", 1),
        AgentId(agent.agent.start + 1, "00000000"),
    )
    there = Subject.for_host("web01", where)
    if there != web01:
        await add_subjects(connection, str(there))
    await messages.claim(there, newer, NOW)
    await haunt(connection, there)
    await haunt(connection, web01)

    with pytest.raises(FencedError, match=str(newer)):
        await agent.publish(round_of(make_round, agent.agent, 1))

    assert lines_of(await stream()) == []


async def test_a_newer_agent_is_known_although_its_messages_were_purged(
    connection: Connection, make_round: Make, stream: Stream
) -> None:
    older = await PublishingAgent(connection).open()
    newer = await PublishingAgent(connection, "bbbbbbbb").open()
    await connection.api("STREAM.PURGE.LOGS")

    with pytest.raises(FencedError, match=str(newer.agent)):
        await older.publish(round_of(make_round, older.agent, 1))
    await newer.publish(r := round_of(make_round, newer.agent, 1))

    assert lines_of(await stream()) == [r.payload]


async def test_an_agent_whose_clock_ran_ahead_is_followed_and_one_that_comes_later_ends_us(
    connection: Connection, web01: Subject, make_round: Make
) -> None:
    """The one ahead is hidden behind a late claim, so only the headers show it."""
    messages, ahead = HostMessages(connection, "web01", 1), AgentId(NOW // 500_000, "00000000")
    await messages.claim(web01, ahead, NOW)
    await haunt(connection, web01)

    agent = await PublishingAgent(connection).open()
    assert agent.agent > ahead
    newer = await PublishingAgent(connection, "bbbbbbbb").open()

    assert newer.agent > agent.agent
    with pytest.raises(SessionLost):
        await agent.store(round_of(make_round, agent.agent, 1))
    with pytest.raises(FencedError, match=str(newer.agent)):
        await agent.open()
