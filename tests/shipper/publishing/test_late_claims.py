"""An older agent's claim comes late: the newer one claims again and goes on with its round, unless lines came between."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.block import Block, encode_origin
from broker.connecting.connection import Connection
from broker.exits import FencedError
from broker.subjects import Subject
from shipper.positions import Positions
from shipper.publishing.agent_id import AgentId
from shipper.publishing.heading import Heading
from shipper.publishing.ownership import Ownership, OwnershipLost, take_over
from shipper.publishing.publisher import Publisher
from shipper.publishing.registry import Registry
from shipper.publishing.rounds import Round, outgoing
from shipper.publishing.waiting import Waiting
from tests.partitions import add_subjects

pytestmark = pytest.mark.nats

Make = Callable[..., Block]
Stream = Callable[[], Awaitable[list[Any]]]
GHOST = AgentId(1, "ffffffff")


def clock() -> int:
    return 1_700_000_000_000_000_000


async def own(connection: Connection, subject: Subject) -> tuple[Publisher, Ownership]:
    registry, waiting = Registry(connection, subject), Waiting()
    ownership = await take_over(registry, Positions(), "aaaaaaaa", clock, waiting)
    heading = Heading(connection, subject)
    return Publisher(connection, registry, ownership, heading, waiting), ownership


def round_of(make: Make, agent: AgentId, number: int, blocks: int = 3) -> Round:
    lines = [b"line %d.%03d\n" % (number, i) for i in range(blocks)]
    return Round(
        tuple(make(str(agent), 1000 * number + 11 * i, line) for i, line in enumerate(lines))
    )


def ghost_at(publisher_of: Connection, subject: Subject, claim: int) -> Publisher:
    return Publisher(
        publisher_of,
        Registry(publisher_of, subject),
        Ownership(GHOST, claim, Positions(claim)),
        Heading(publisher_of, subject),
        Waiting(),
    )


def lines_of(messages: list[Any]) -> list[bytes]:
    return [message.lines for message in messages if message.lines]


async def test_the_newer_agent_goes_on_with_the_round_in_hand_and_the_older_one_ends(
    connection: Connection, web01: Subject, make_block: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    rounds = [round_of(make_block, owner.agent, number) for number in range(4)]
    await publisher.publish(rounds[0])
    ghost = ghost_at(connection, web01, await Registry(connection, web01).claim(GHOST, clock()))

    for r in rounds[1:]:
        await publisher.publish(r)
    with pytest.raises(FencedError, match=str(owner.agent)):
        await ghost.publish(round_of(make_block, GHOST, 9))

    assert lines_of(await stream()) == [b.payload for r in rounds for b in r.blocks]


async def test_a_round_that_was_stored_before_the_late_claim_is_not_stored_again(
    connection: Connection, web01: Subject, make_block: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    r = round_of(make_block, owner.agent, 1)
    for message in outgoing(r, owner.claim, "b1"):
        await connection.request(str(web01), message.payload, message.headers)
    await Registry(connection, web01).claim(GHOST, clock())

    await publisher.publish(r)
    await publisher.publish(next_ := round_of(make_block, owner.agent, 2))

    assert lines_of(await stream()) == [b.payload for b in (*r.blocks, *next_.blocks)]


@pytest.mark.parametrize("cut", [False, True], ids=["at once", "its answer lost"])
async def test_lines_of_the_older_agent_make_the_newer_one_start_over_however_it_claims(
    connection: Connection, line: Any, web01: Subject, make_block: Make, stream: Stream, cut: bool
) -> None:
    far = Connection([line.url], "test")
    publisher, owner = await own(far, web01)
    ghost = ghost_at(connection, web01, await Registry(connection, web01).claim(GHOST, clock()))
    late = round_of(make_block, GHOST, 1)
    await ghost.publish(late)
    line.cut_after = b'"seq"' if cut else b""

    with pytest.raises(OwnershipLost, match=str(GHOST)):
        await publisher.publish(round_of(make_block, owner.agent, 1))
    await far.close()

    assert line.seen == cut
    assert lines_of(await stream()) == [b.payload for b in late.blocks]


async def test_the_answer_to_the_second_claim_may_be_lost(
    connection: Connection, line: Any, web01: Subject, make_block: Make, stream: Stream
) -> None:
    far = Connection([line.url], "test")
    publisher, owner = await own(far, web01)
    r = round_of(make_block, owner.agent, 1)
    for message in outgoing(r, owner.claim, "b1"):
        await connection.request(str(web01), message.payload, message.headers)
    await Registry(connection, web01).claim(GHOST, clock())
    line.cut_after = b'"seq"'

    await publisher.publish(r)
    await far.close()

    assert line.seen == 1
    assert lines_of(await stream()) == [b.payload for b in r.blocks]


async def test_a_subject_that_the_older_agent_claimed_elsewhere_is_taken_as_well(
    connection: Connection, web01: Subject, make_block: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    other = Subject.for_host("web01", 5)
    await add_subjects(connection, str(other))
    await Registry(connection, web01).claim(GHOST, clock())
    ghost = ghost_at(connection, other, await Registry(connection, other).claim(GHOST, clock()))
    r = round_of(make_block, owner.agent, 1)

    await publisher.publish(r)
    with pytest.raises(FencedError, match=str(owner.agent)):
        await ghost.publish(round_of(make_block, GHOST, 9))

    assert lines_of(await stream()) == [b.payload for b in r.blocks]


async def test_a_newer_agent_that_came_behind_the_late_claim_wins(
    connection: Connection, web01: Subject, make_block: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    registry, newer = Registry(connection, web01), AgentId(owner.agent.start + 1, "00000000")
    await registry.claim(newer, clock())
    await registry.claim(GHOST, clock())

    with pytest.raises(FencedError, match=str(newer)):
        await publisher.publish(round_of(make_block, owner.agent, 1))

    assert lines_of(await stream()) == []


async def test_what_cannot_be_read_again_goes_on_whatever_the_older_agent_stored(
    connection: Connection, web01: Subject, make_block: Make, stream: Stream
) -> None:
    publisher, owner = await own(connection, web01)
    late = make_block(str(GHOST), 0, b"late\n")
    await connection.ask(str(web01), late.payload, encode_origin(late.origin))
    blocks = round_of(make_block, owner.agent, 1).blocks
    piped = Round(tuple(replace(b, origin=replace(b.origin, identity=None)) for b in blocks))

    await publisher.publish(piped)

    assert lines_of(await stream()) == [b"late\n", *(b.payload for b in blocks)]
