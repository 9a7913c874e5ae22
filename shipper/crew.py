"""What an agent works with once it owns its subject: claimed, positions rebuilt, ready to read and to publish."""

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.folder import make_folder
from broker.client.connection import Connection
from broker.wire.streams import room_in
from broker.wire.subjects import Subject
from shipper.expression import Expression
from shipper.files.handles import most_open_files
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
from shipper.publishing.rounds import NEARBY_SIZE, Round
from shipper.publishing.snapshots import Snapshots
from shipper.publishing.unacknowledged import UnacknowledgedPublisher
from shipper.publishing.waiting import Waiting
from shipper.settings import ShipperSettings, default_state_dir
from shipper.sieve import Rules
from shipper.spool import PATH, Spool

__all__ = ["Crew", "Errand", "follower_for", "muster", "pace_for", "spool_for"]

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
    snapshots: Snapshots
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


async def muster(errand: Errand, known: Positions) -> Crew:
    """Claim the subject and rebuild the positions; without acknowledgements there is nothing to claim.

    `known` are the positions that count where the broker has no snapshot of them.

    Raises `ConfigurationError` before that when another agent of the host lives on this machine.
    """
    lock = errand.lock
    partitions = await partitions_of(errand.connection, errand.waiting)
    (lock.share if errand.settings.take_over else lock.take)(partitions.time)
    subject = Subject.for_host(errand.host, partitions.count)
    heading = Heading(errand.connection, subject, tell=lambda found: lock.share(found.time))
    if not errand.settings.ack:
        agent = AgentId.following(None, errand.clock() // 1_000_000, errand.tag)
        plain = UnacknowledgedPublisher(
            errand.connection, heading, errand.waiting, errand.settings.compression
        )
        snapshot = await errand.waiting.until_answered(errand.snapshots.read)
        return Crew(agent, plain.publish, snapshot or known, await _room(errand))
    registry = Registry(errand.connection, subject)
    ownership = await take_over(
        registry, errand.snapshots, known, errand.tag, errand.clock, errand.waiting
    )
    publisher = Publisher(
        errand.connection,
        registry,
        ownership,
        heading,
        errand.waiting,
        errand.settings.compression,
    )
    logger.info("agent %s ships on %s", ownership.agent, subject)
    return Crew(ownership.agent, publisher.publish, ownership.positions, await _room(errand))


async def _room(errand: Errand) -> int:
    return room_in((await errand.connection.client()).max_payload)


def follower_for(errand: Errand, crew: Crew, selection: Selection) -> Follower:
    """Return a follower of a selection that starts at the crew's positions, with blocks that the broker takes."""
    return Follower(
        selection,
        crew.positions.files.values(),
        new_id=lambda: f"{crew.agent}.{errand.new_number()}",
        clock=errand.clock,
        block_size=min(NEARBY_SIZE, crew.room),
        max_line=min(errand.settings.max_line, crew.room),
        grace=errand.settings.grace.total_seconds(),
        hold=errand.settings.hold_deleted.total_seconds(),
        open_files=most_open_files(),
        poll_every=errand.settings.poll_every.total_seconds(),
        listen=errand.settings.watch,
    )


def spool_for(errand: Errand) -> Spool:
    """Return the spool of standard input; raises `OperatorError` where it cannot be kept."""
    path = errand.settings.state_dir or default_state_dir(os.environ, Path.home())
    run = AgentId.following(None, errand.clock() // 1_000_000, errand.tag)
    try:
        with make_folder(path, 0o700) as folder:
            return Spool(
                folder.make(errand.host, 0o700),
                lambda: f"{run}.{errand.new_number()}",
                errand.clock,
            )
    except OSError as error:
        raise OperatorError(
            f"cannot spool standard input: {error.filename}: {error.strerror}; check --state-dir"
        ) from None


def pace_for(settings: ShipperSettings) -> Pace:
    """Return how the loop is to breathe."""
    spools = settings.file == (PATH,)
    return Pace(
        round_bytes(settings.memory, settings.max_line, settings.round_size),
        settings.compression,
        settings.once and not spools,  # its end is that of the input
        settings.patience.total_seconds() if settings.once else None,
        look_after=0.02
        if spools
        else 0.2,  # a folder of a few files, and one that is read after another
        rules=Rules(
            tuple(map(Expression, settings.include_lines)),
            tuple(map(Expression, settings.exclude_lines)),
        ),
    )
