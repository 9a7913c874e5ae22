"""What an agent works with from one claim to the loss of it: its id, where it publishes, the positions, what it reads."""

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
from shipper.expression import Expression
from shipper.host_lock import HostLock
from shipper.line_filter import Rules
from shipper.positions import Cursor, Positions
from shipper.publish.claim import Claimant
from shipper.publish.messages import HostMessages
from shipper.publish.publisher import Publisher, UnacknowledgedPublisher
from shipper.publish.rounds import NEARBY_SIZE, Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.stored import AgentId
from shipper.publish.subject import HostSubject
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
    "Sessions",
    "follower_for",
    "loop_options",
    "spool_for",
]

_SNAPSHOT_EVERY = 60.0  # seconds, of which a random quarter is left out: not all hosts at once
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run of the shipper works with from its start to its end.

    `tag` is eight random hex digits, `clock` nanoseconds since the epoch; `lock` is held from before the first claim on.
    """

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
    """What one claim gives; `room` is how large a payload the broker takes, in bytes."""

    agent: AgentId
    publish: Callable[[Round], Awaitable[int]]
    positions: Positions
    room: int


class Sessions:
    """Opens the sessions of a run, one after the other."""

    def __init__(self, context: RunContext, settings: ShipperSettings) -> None:
        """Open none yet."""
        connection, waiting = context.connection, context.waiting
        self._context = context
        self._settings = settings
        self._host_subject = HostSubject(connection, context.host, waiting)
        self._publisher = Publisher(connection, self._host_subject, waiting, settings.compression)
        self._claimant = Claimant(
            HostMessages(connection, context.host),
            context.snapshots,
            waiting,
            context.tag,
            context.clock,
        )

    async def open(self, known: Positions) -> Session:
        """Claim the host's subjects and rebuild the positions; without acknowledgements there is nothing to claim.

        `known` are the positions of the session before. Raises `OperatorError` before the first claim when another agent of
        the host lives on this machine, `FencedError` when a newer one does anywhere.
        """
        partitions = await self._host_subject.find()
        is_next = self._claimant.agent is not None
        lock = self._context.lock
        (lock.share if self._settings.take_over or is_next else lock.take)(partitions.time)
        room = room_in((await self._context.connection.client()).max_payload)
        if not self._settings.ack:
            return await self._unacknowledged(known, room)
        owned = await self._claimant.claim(self._host_subject.subject, known)
        self._publisher.begin(owned)
        logger.info("agent %s ships on %s", owned.agent, owned.subject)
        return Session(owned.agent, self._publisher.publish, owned.positions, room)

    async def _unacknowledged(self, known: Positions, room: int) -> Session:
        context = self._context
        agent = AgentId.following(None, context.clock() // 1_000_000, context.tag)
        plain = UnacknowledgedPublisher(
            context.connection, self._host_subject, context.waiting, self._settings.compression
        )
        saved = await context.waiting.until_answered(context.snapshots.read)
        return Session(agent, plain.publish, known if known.files else saved or known, room)


def follower_for(
    context: RunContext, settings: ShipperSettings, session: Session, selection: Selection
) -> Follower:
    """Return a follower of a selection that starts at the session's positions, with blocks that the broker takes."""
    return Follower(
        selection,
        session.positions.files.values(),
        new_id=lambda: f"{session.agent}.{context.new_number()}",
        clock=context.clock,
        block_size=min(NEARBY_SIZE, session.room),
        max_line=min(settings.max_line, session.room),
        grace=settings.grace.total_seconds(),
        hold=settings.hold_deleted.total_seconds(),
        open_files=most_open_files(),
        poll_every=settings.poll_every.total_seconds(),
        listen=settings.watch,
    )


def spool_for(context: RunContext, settings: ShipperSettings) -> Spool:
    """Return the spool of standard input; raises `OperatorError` where it cannot be kept."""
    path = settings.state_dir or default_state_dir(os.environ, Path.home())
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
    """Return the sizes and intervals of the shipping loop."""
    spools = settings.file == (PATH,)
    return LoopOptions(
        round_bytes(settings.memory, settings.max_line, settings.round_size),
        settings.compression,
        settings.once and not spools,  # its end is that of the input
        settings.patience.total_seconds() if settings.once else None,
        scan_after=0.02 if spools else 0.2,  # a spool has few files, one after another
        rules=Rules(
            tuple(map(Expression, settings.include_lines)),
            tuple(map(Expression, settings.exclude_lines)),
        ),
    )


class Keeper:
    """Writes what is safely stored as snapshots; one that cannot be written costs a longer start, and no line.

    All methods raise `FencedError` where a newer agent has written.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        waiting: Waiting,
        clock: Callable[[], int],
        every: float = _SNAPSHOT_EVERY,
    ) -> None:
        """Remember where to write; `clock` is nanoseconds since the epoch, `every` in seconds."""
        self._snapshots = snapshots
        self._waiting = waiting
        self._clock = clock
        self._every = every
        self._complained = False
        self._writing = asyncio.Lock()

    async def run(self, shipping: Shipping) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.75, 1.0))
            # before it is, files that are there are not followed yet, and none would seem to be wanted
            if shipping.is_oriented:
                await self._forget(shipping)
            await self.try_save(shipping.positions)

    async def save(self, positions: Positions) -> None:
        """Return once the broker has the positions, however long that takes."""
        await self._waiting.until_answered(lambda: self._write(positions))

    async def try_save(self, positions: Positions) -> None:
        """Write the positions now if the broker takes them."""
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
        async with self._writing:
            await self._snapshots.write(positions)

    async def _forget(self, shipping: Shipping) -> None:
        old = shipping.positions.forgettable(shipping.following(), self._clock())
        if gone := await asyncio.to_thread(_gone, old):
            # one of them may have come back meanwhile
            shipping.positions = shipping.positions.without(gone - shipping.following())


def _gone(cursors: Iterable[Cursor]) -> set[str]:
    return {cursor.file for cursor in cursors if _inode(cursor.path) != cursor.identity.inode}


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - a path of any bytes, as it was followed
    except OSError:
        return None
