"""What an agent works with once it owns its subject: claimed, positions rebuilt, ready to read and to publish."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker.connecting.connection import Connection
from broker.subjects import Subject
from broker.topology import room_in
from shipper.expression import Expression
from shipper.files.handles import most_open_files
from shipper.files.limits import LEAST_SHARE, Limits
from shipper.files.selection import Selection
from shipper.following.follower import Follower
from shipper.host_lock import HostLock
from shipper.pace import Pace
from shipper.positions import Positions
from shipper.publishing.agent_id import AgentId
from shipper.publishing.allowance import round_bytes
from shipper.publishing.heading import Heading, partitions_of
from shipper.publishing.ownership import take_over
from shipper.publishing.publisher import Publisher
from shipper.publishing.registry import Registry
from shipper.publishing.rounds import LONE_SIZE, Round
from shipper.publishing.unacknowledged import UnacknowledgedPublisher
from shipper.publishing.waiting import Waiting
from shipper.settings import ShipperSettings
from shipper.sieve import Rules
from shipper.standard_input import StandardInput

__all__ = ["Crew", "Errand", "follower_for", "input_for", "muster", "pace_for"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Errand:
    """What a run of the shipper is to do; `tag` is eight random hex digits, `clock` nanoseconds since the epoch.

    `lock` is held from before the first claim to the end of the run.
    """

    settings: ShipperSettings
    host: str
    lock: HostLock
    connection: Connection
    waiting: Waiting
    tag: str
    clock: Callable[[], int]
    new_number: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Crew:
    """What one ownership of the subject works with; `room` is how large a payload the broker takes, in bytes."""

    agent: AgentId
    publish: Callable[[Round], Awaitable[int]]
    positions: Positions
    room: int


async def muster(errand: Errand, cached: Positions) -> Crew:
    """Claim the subject and rebuild the positions; without acknowledgements there is nothing to claim.

    Raises `ConfigurationError` before that when another agent of the host lives on this machine.
    """
    lock = errand.lock
    partitions = await partitions_of(errand.connection, errand.waiting)
    (lock.share if errand.settings.take_over else lock.take)(partitions.time)
    subject = Subject.for_host(errand.host, partitions.count)
    heading = Heading(errand.connection, subject, tell=lambda found: lock.share(found.time))
    if not errand.settings.ack:
        agent = AgentId.following(None, errand.clock() // 1_000_000, errand.tag)
        plain = UnacknowledgedPublisher(errand.connection, heading, errand.waiting)
        return Crew(agent, plain.publish, cached, await _room(errand))
    registry = Registry(errand.connection, subject)
    ownership = await take_over(registry, cached, errand.tag, errand.clock, errand.waiting)
    publisher = Publisher(errand.connection, registry, ownership, heading, errand.waiting)
    logger.info("agent %s ships on %s", ownership.agent, subject)
    return Crew(ownership.agent, publisher.publish, ownership.positions, await _room(errand))


async def _room(errand: Errand) -> int:
    return room_in((await errand.connection.client()).max_payload)


def follower_for(errand: Errand, crew: Crew, selection: Selection) -> Follower:
    """Return a follower of a selection that starts at the crew's positions, with blocks that the broker takes."""
    return Follower(
        selection,
        crew.positions.files.values(),
        agent=str(crew.agent),
        new_id=lambda: f"{crew.agent}.{errand.new_number()}",
        clock=errand.clock,
        block_size=min(LONE_SIZE, crew.room),
        max_line=min(errand.settings.max_line, crew.room),
        grace=errand.settings.grace.total_seconds(),
        hold=errand.settings.hold_deleted.total_seconds(),
        open_files=most_open_files(),
        poll_every=errand.settings.poll_every.total_seconds(),
        listen=errand.settings.watch,
    )


def input_for(errand: Errand, crew: Crew, stopping: asyncio.Event) -> StandardInput:
    """Return standard input, with blocks that the broker takes."""
    max_line = min(errand.settings.max_line, crew.room)
    limits = Limits(min(LEAST_SHARE, crew.room), max_line, 0, 0)
    return StandardInput(f"{crew.agent}.{errand.new_number()}", limits, errand.clock, stopping)


def pace_for(settings: ShipperSettings) -> Pace:
    """Return how the loop is to breathe."""
    return Pace(
        round_bytes(settings.memory, settings.max_line, settings.round_size),
        settings.compression,
        settings.once,
        settings.patience.total_seconds() if settings.once else None,
        rules=Rules(
            tuple(map(Expression, settings.include_lines)),
            tuple(map(Expression, settings.exclude_lines)),
        ),
    )
