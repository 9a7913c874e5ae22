"""What an agent works with once it owns its subject: claimed, positions rebuilt, ready to read and to publish."""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.folder import make_folder
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import room_in
from broker.wire.subjects import Subject
from shipper.expression import Expression
from shipper.host_lock import HostLock
from shipper.line_filter import Rules
from shipper.positions import Cursor, Positions
from shipper.publish.claim import Registry, fenced_by, take_over
from shipper.publish.publisher import Publisher, UnacknowledgedPublisher
from shipper.publish.rounds import NEARBY_SIZE, Round
from shipper.publish.snapshots import Outdated, Snapshots
from shipper.publish.stored import AgentId
from shipper.publish.subject import HostSubject, partitions_of
from shipper.publish.waiting import Waiting
from shipper.settings import ShipperSettings, default_state_dir, round_bytes
from shipper.shipping import LoopOptions, Shipping
from shipper.spool import PATH, Spool
from shipper.tail.follower import Follower
from shipper.tail.open_files import most_open_files
from shipper.tail.paths import Selection

__all__ = [
    "Keeper",
    "RunContext",
    "Session",
    "follower_for",
    "loop_options",
    "open_session",
    "spool_for",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunContext:
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
class Session:
    """What one ownership of the subject works with; `room` is how large a payload the broker takes, in bytes."""

    agent: AgentId
    publish: Callable[[Round], Awaitable[int]]
    positions: Positions
    room: int


async def open_session(context: RunContext, known: Positions) -> Session:
    """Claim the subject and rebuild the positions; without acknowledgements there is nothing to claim.

    `known` are the positions that count where the broker has no snapshot of them.

    Raises `ConfigurationError` before that when another agent of the host lives on this machine.
    """
    lock = context.lock
    partitions = await partitions_of(context.connection, context.waiting)
    (lock.share if context.settings.take_over else lock.take)(partitions.time)
    subject = Subject.for_host(context.host, partitions.count)
    host_subject = HostSubject(
        context.connection, subject, tell=lambda found: lock.share(found.time)
    )
    if not context.settings.ack:
        agent = AgentId.following(None, context.clock() // 1_000_000, context.tag)
        plain = UnacknowledgedPublisher(
            context.connection, host_subject, context.waiting, context.settings.compression
        )
        snapshot = await context.waiting.until_answered(context.snapshots.read)
        return Session(agent, plain.publish, snapshot or known, await _room(context))
    registry = Registry(context.connection, subject)
    ownership = await take_over(
        registry, context.snapshots, known, context.tag, context.clock, context.waiting
    )
    publisher = Publisher(
        context.connection,
        registry,
        ownership,
        host_subject,
        context.waiting,
        context.settings.compression,
    )
    logger.info("agent %s ships on %s", ownership.agent, subject)
    return Session(ownership.agent, publisher.publish, ownership.positions, await _room(context))


async def _room(context: RunContext) -> int:
    return room_in((await context.connection.client()).max_payload)


def follower_for(context: RunContext, session: Session, selection: Selection) -> Follower:
    """Return a follower of a selection that starts at the session's positions, with blocks that the broker takes."""
    return Follower(
        selection,
        session.positions.files.values(),
        new_id=lambda: f"{session.agent}.{context.new_number()}",
        clock=context.clock,
        block_size=min(NEARBY_SIZE, session.room),
        max_line=min(context.settings.max_line, session.room),
        grace=context.settings.grace.total_seconds(),
        hold=context.settings.hold_deleted.total_seconds(),
        open_files=most_open_files(),
        poll_every=context.settings.poll_every.total_seconds(),
        listen=context.settings.watch,
    )


def spool_for(context: RunContext) -> Spool:
    """Return the spool of standard input; raises `OperatorError` where it cannot be kept."""
    path = context.settings.state_dir or default_state_dir(os.environ, Path.home())
    run = AgentId.following(None, context.clock() // 1_000_000, context.tag)
    try:
        with make_folder(path, 0o700) as folder:
            return Spool(
                folder.make(context.host, 0o700),
                lambda: f"{run}.{context.new_number()}",
                context.clock,
            )
    except OSError as error:
        raise OperatorError(
            f"cannot spool standard input: {error.filename}: {error.strerror}; check --state-dir"
        ) from None


def loop_options(settings: ShipperSettings) -> LoopOptions:
    """Return how the loop works by these settings."""
    spools = settings.file == (PATH,)
    return LoopOptions(
        round_bytes(settings.memory, settings.max_line, settings.round_size),
        settings.compression,
        settings.once and not spools,  # its end is that of the input
        settings.patience.total_seconds() if settings.once else None,
        scan_after=0.02
        if spools
        else 0.2,  # a folder of a few files, and one that is read after another
        rules=Rules(
            tuple(map(Expression, settings.include_lines)),
            tuple(map(Expression, settings.exclude_lines)),
        ),
    )


_EVERY = 60.0  # seconds, of which a random quarter is left out: not all hosts at once


class Keeper:
    """Writes what a shipping has safely stored; a snapshot that cannot be written costs a longer start, and no line."""

    def __init__(
        self,
        snapshots: Snapshots,
        waiting: Waiting,
        clock: Callable[[], int],
        every: float = _EVERY,
    ) -> None:
        """Remember where to write; `clock` is nanoseconds since the epoch, `every` in seconds."""
        self._snapshots = snapshots
        self._waiting = waiting
        self._clock = clock
        self._every = every
        self._complained = False
        self._writing = asyncio.Lock()

    async def run(self, shipping: Shipping) -> None:
        """Write until cancelled; raises `FencedError` where a newer agent has written."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.75, 1.0))
            # before it is, files that are there are not followed yet, and none would seem to be wanted
            if shipping.is_oriented:
                await self._forget(shipping)
            await self.try_save(shipping.positions)

    async def save(self, positions: Positions) -> None:
        """Return once the broker has the positions, however long that takes; raises as `run`."""
        await self._waiting.until_answered(lambda: self._write(positions))

    async def try_save(self, positions: Positions) -> None:
        """Write the positions now if the broker takes them; raises as `run`."""
        try:
            await self._write(positions)
        except (ConnectionLost, Rejected) as error:
            if not self._complained:
                logger.warning(
                    "cannot write the snapshot of the positions: %s; a restart reads them back from the stream",
                    error,
                )
            self._complained = True
        else:
            self._complained = False

    async def _write(self, positions: Positions) -> None:
        try:
            async with self._writing:
                await self._snapshots.write(positions)
        except Outdated as error:
            raise fenced_by(error.rival, "its positions") from None

    async def _forget(self, shipping: Shipping) -> None:
        old = shipping.positions.forgettable(shipping.following(), self._clock())
        gone = await asyncio.to_thread(_gone, old)
        if gone:
            # one of them may have come back meanwhile
            shipping.positions = shipping.positions.without(gone - shipping.following())


def _gone(cursors: Iterable[Cursor]) -> set[str]:
    return {cursor.file for cursor in cursors if _inode(cursor.path) != cursor.identity.inode}


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - a path of any bytes, as it was followed
    except OSError:
        return None
