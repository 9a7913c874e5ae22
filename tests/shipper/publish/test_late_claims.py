"""An older agent's claim comes late: the newer one claims again and goes on with its round, unless lines came between."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.app.exits import FencedError
from broker.client.connection import Connection
from broker.wire.subjects import Subject
from shipper.positions import Positions
from shipper.publish.claim import Ownership, OwnershipLost, Registry, take_over
from shipper.publish.publisher import Publisher
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.stored import AgentId
from shipper.publish.subject import HostSubject
from shipper.publish.waiting import Waiting
from tests.partitions import add_subjects

pytestmark = pytest.mark.nats

Make = Callable[..., Round]
Stream = Callable[[], Awaitable[list[Any]]]
GHOST = AgentId(1, "ffffffff")


def clock() -> int:
    return 1_700_000_000_000_000_000


async def own(connection: Connection, subject: Subject) -> tuple[Publisher, Ownership]:
    registry, waiting = Registry(connection, subject), Waiting()
    ownership = await take_over(
        registry, Snapshots(connection, subject.host), Positions(), "aaaaaaaa", clock, waiting
    )
    host_subject = HostSubject(connection, subject)
    return Publisher(connection, registry, ownership, host_subject, waiting, "none"), ownership


def round_of(make: Make, agent: AgentId, number: int) -> Round:
    lines = b"".join(b"line %d.%03d\n" % (number, n) for n in range(3))
    return make(str(agent), 1000 * number, lines)


async def store(connection: Connection, subject: Subject, round_: Round, expected: int) -> None:
    """Store a round as its publisher does, but let nobody hear of it."""
    headers = {"Nats-Expected-Last-Subject-Sequence": str(expected)}
    await connection.ask(str(subject), round_.payload, round_.headers | headers)


def ghost_at(publisher_of: Connection, subject: Subject, claim: int) -> Publisher:
    return Publisher(
        publisher_of,
        Registry(publisher_of, subject),
        Ownership(GHOST, claim, Positions(claim)),
        HostSubject(publisher_of, subject),
        Waiting(),
        "none",
    )


def lines_of(messages: list[Any]) -> list[bytes]:
    return [message.lines for message in messages if message.lines]


async def test_the_newer_agent_goes_on_with_the_round_in_hand_and_the_older_one_ends(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    rounds = [round_of(make_round, owner.agent, number) for number in range(4)]
    await publisher.publish(rounds[0])
    ghost = ghost_at(connection, web01, await Registry(connection, web01).claim(GHOST, clock()))

    for r in rounds[1:]:
        await publisher.publish(r)
    with pytest.raises(FencedError, match=str(owner.agent)):
        await ghost.publish(round_of(make_round, GHOST, 9))

    assert lines_of(await stream()) == [r.payload for r in rounds]


async def test_a_round_that_was_stored_before_the_late_claim_is_not_stored_again(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    r = round_of(make_round, owner.agent, 1)
    await store(connection, web01, r, owner.claim)
    await Registry(connection, web01).claim(GHOST, clock())

    await publisher.publish(r)
    await publisher.publish(next_ := round_of(make_round, owner.agent, 2))

    assert lines_of(await stream()) == [r.payload, next_.payload]


@pytest.mark.parametrize("cut", [False, True], ids=["at once", "its answer lost"])
async def test_lines_of_the_older_agent_make_the_newer_one_start_over_however_it_claims(
    connection: Connection, line: Any, web01: Subject, make_round: Make, stream: Stream, cut: bool
) -> None:
    far = Connection([line.url], "test")
    publisher, owner = await own(far, web01)
    ghost = ghost_at(connection, web01, await Registry(connection, web01).claim(GHOST, clock()))
    late = round_of(make_round, GHOST, 1)
    await ghost.publish(late)
    line.cut_after = b'"seq"' if cut else b""

    with pytest.raises(OwnershipLost, match=str(GHOST)):
        await publisher.publish(round_of(make_round, owner.agent, 1))
    await far.close()

    assert line.seen == cut
    assert lines_of(await stream()) == [late.payload]


async def test_the_answer_to_the_second_claim_may_be_lost(
    connection: Connection, line: Any, web01: Subject, make_round: Make, stream: Stream
) -> None:
    far = Connection([line.url], "test")
    publisher, owner = await own(far, web01)
    r = round_of(make_round, owner.agent, 1)
    await store(connection, web01, r, owner.claim)
    await Registry(connection, web01).claim(GHOST, clock())
    line.cut_after = b'"seq"'

    await publisher.publish(r)
    await far.close()

    assert line.seen == 1
    assert lines_of(await stream()) == [r.payload]


async def test_a_subject_that_the_older_agent_claimed_elsewhere_is_taken_as_well(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    other = Subject.for_host("web01", 5)
    await add_subjects(connection, str(other))
    await Registry(connection, web01).claim(GHOST, clock())
    ghost = ghost_at(connection, other, await Registry(connection, other).claim(GHOST, clock()))
    r = round_of(make_round, owner.agent, 1)

    await publisher.publish(r)
    with pytest.raises(FencedError, match=str(owner.agent)):
        await ghost.publish(round_of(make_round, GHOST, 9))

    assert lines_of(await stream()) == [r.payload]


async def test_a_newer_agent_that_came_behind_the_late_claim_wins(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    registry, newer = Registry(connection, web01), AgentId(owner.agent.start + 1, "00000000")
    await registry.claim(newer, clock())
    await registry.claim(GHOST, clock())

    with pytest.raises(FencedError, match=str(newer)):
        await publisher.publish(round_of(make_round, owner.agent, 1))

    assert lines_of(await stream()) == []
