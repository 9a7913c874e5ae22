"""What an agent works with from one claim to the loss of it: its id, where it publishes, the positions, what it reads."""

import asyncio
import itertools
import logging
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.files import make_folder
from broker.client.connection import Connection, Denied, Rejected
from broker.client.credentials import verify
from broker.wire.positions import Cursor, Positions
from broker.wire.subjects import inbox_of
from shipper.line_filter import Rules
from shipper.publish.claim import Claimant
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import HostMessages
from shipper.publish.publisher import Publisher, UnacknowledgedPublisher
from shipper.publish.rounds import NEARBY_SIZE, Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.stored import AgentId
from shipper.publish.waiting import Waiting, reason_of, wrong_credential
from shipper.settings import ShipperSettings, default_state_dir, expression
from shipper.shipping import LoopOptions, Shipping
from shipper.spool import PATH, Spool
from shipper.status.live import require_alone
from shipper.tail.follower import Follower
from shipper.tail.open_files import most_open_files
from shipper.tail.paths import Selection

__all__ = [
    "SNAPSHOT_EVERY",
    "Session",
    "Sessions",
    "connection_for",
    "follower_for",
    "keep_positions",
    "loop_options",
    "reasons_for",
    "spool_for",
]

SNAPSHOT_EVERY = 60.0
"""Seconds, of which a random quarter is left out: not all hosts at once."""
logger = logging.getLogger(__name__)


def connection_for(settings: ShipperSettings, host: str) -> Connection:
    """Return the connection of a host's shipper; answers come to inboxes that its rights can be limited to.

    Raises `ConfigurationError` when the means of getting in cannot be used.
    """
    verify(settings.access)
    inboxes = tuple(dict.fromkeys((inbox_of(host), f"_INBOX_{host}")))
    return Connection(settings.server, f"logshipper {host}", inboxes, settings.access)


def reasons_for(
    settings: ShipperSettings, host: str, connection: Connection
) -> Callable[[Rejected], str]:
    """Return what says why the broker refuses something to the shipper of a host: a credential may be another host's."""
    named = str(settings.from_file.get("host", ""))

    def explain(error: Rejected) -> str:
        mistake = ""
        if isinstance(error, Denied):
            mistake = wrong_credential(host, named, error, connection.permissions)
        return mistake or reason_of(error)

    return explain


@dataclass(frozen=True, slots=True)
class Session:
    """What one claim gives; `max_payload` is what the broker takes at a time, in bytes, `broker` tells it from others."""

    agent: AgentId
    positions: Positions
    max_payload: int
    broker: str

    def most_bytes(self, wanted: int) -> int:
        """Return so many bytes of lines, or fewer where a message would not take them with a last newline that is added."""
        return min(wanted, self.max_payload - 1)


class Sessions:
    """Opens the sessions of a run, one after the other, with what all of them share; `publish` is for the newest."""

    def __init__(self, settings: ShipperSettings, host: str, clock: Callable[[], int]) -> None:
        """Open none yet; `clock` is nanoseconds since the epoch."""
        self.connection = connection = connection_for(settings, host)
        self.waiting = waiting = Waiting(reasons_for(settings, host, connection))
        self.snapshots = Snapshots(connection, host)
        self.config = config = BrokerConfig(connection, host, clock)
        self._settings = settings
        self._host = host
        self._run = AgentId.following(None, clock() // 1_000_000, secrets.token_hex(4))
        self._numbers = itertools.count(1)
        self._messages, tag = HostMessages(connection, host, 1), self._run.tag
        self._claimant = Claimant(self._messages, self.snapshots, waiting, tag, clock)
        kind = Publisher if settings.ack else UnacknowledgedPublisher
        self._publisher = kind(connection, config, waiting)
        self.publish: Callable[[Round], Awaitable[int]] = self._publisher.publish

    def new_file(self) -> str:
        """Return an id for a file that was never followed."""
        return f"{self._run}.{next(self._numbers)}"

    async def open(self, known: Positions) -> Session:
        """Claim the host's subjects, behind a pause, and rebuild the positions; without acknowledgements there is nothing to claim.

        `known` are the positions of the session before. Raises `OperatorError` before the first claim when another agent of
        the host lives on this machine, `FencedError` when a newer one does anywhere.
        """
        await self.waiting.until_answered(self.config.read)
        while self._settings.ack and self.config.pause:  # else rounds wait, but files are followed
            await self.config.until_resumed()
            await self.waiting.until_answered(self.config.read)
        broker = self.config.partitions.time
        is_next = bool(known.files or known.sequence)
        if not (self._settings.take_over or is_next):
            await require_alone(self._host, broker)
        publisher = self._publisher
        max_payload = await publisher.largest()
        if isinstance(publisher, UnacknowledgedPublisher):
            saved = await self.waiting.until_answered(self.snapshots.read)
            positions = known if is_next else saved or known
            return Session(self._run, positions, max_payload, broker)
        self._messages.streams = self.config.streams
        owned = await self._claimant.claim(self.config.subject, known)
        publisher.begin(owned.subject, owned.last)
        logger.info("agent %s ships on %s", owned.agent, owned.subject)
        return Session(owned.agent, owned.positions, max_payload, broker)


def follower_for(
    session: Session,
    settings: ShipperSettings,
    selection: Selection,
    new_file: Callable[[], str],
    clock: Callable[[], int],
) -> Follower:
    """Return a follower of a selection that starts at the session's positions, with blocks that the broker takes."""
    return Follower(
        selection,
        session.positions.files.values(),
        new_id=new_file,
        clock=clock,
        block_size=session.most_bytes(NEARBY_SIZE),
        max_line=session.most_bytes(settings.max_line),
        grace=settings.grace.total_seconds(),
        hold=settings.hold_deleted.total_seconds(),
        open_files=most_open_files(),
        poll_every=settings.poll_every.total_seconds(),
        listen=settings.watch,
    )


def spool_for(
    settings: ShipperSettings, host: str, new_file: Callable[[], str], clock: Callable[[], int]
) -> Spool:
    """Return the spool of standard input; raises `OperatorError` where it cannot be kept."""
    path = settings.state_dir or default_state_dir(os.environ, Path.home())
    try:
        with make_folder(path, 0o700) as folder:
            return Spool(folder.make(host, 0o700), new_file, clock)
    except OSError as error:
        raise OperatorError(
            f"cannot spool standard input: {error.filename}: {error.strerror}; check --state-dir"
        ) from None


def loop_options(settings: ShipperSettings) -> LoopOptions:
    """Return the sizes and intervals of the shipping loop."""
    spools = settings.file == (PATH,)
    return LoopOptions(
        settings.round_size,
        settings.compression,
        settings.once and not spools,  # its end is that of the input
        scan_after=0.02 if spools else 0.2,  # a spool has few files, one after another
        cover_every=0.2 if spools else 5.0,  # and each waits for the one before to be acknowledged
        rules=Rules(
            tuple(map(expression, settings.include_lines)),
            tuple(map(expression, settings.exclude_lines)),
        ),
    )


async def keep_positions(
    shipping: Shipping, snapshots: Snapshots, clock: Callable[[], int], every: float
) -> None:
    """Write snapshots of the positions until cancelled, about `every` seconds; raises `FencedError` where a newer agent has written."""
    while True:
        await asyncio.sleep(every * random.uniform(0.75, 1.0))
        # before it is, files that are there are not followed yet, and none would seem to be wanted
        if shipping.is_oriented:
            old = shipping.positions.forgettable(shipping.following(), clock())
            if gone := await asyncio.to_thread(_gone, old):
                # one of them may have come back meanwhile
                shipping.positions = shipping.positions.without(gone - shipping.following())
        await snapshots.try_write(shipping.positions)


def _gone(cursors: Iterable[Cursor]) -> set[str]:
    return {cursor.file for cursor in cursors if _inode(cursor.path) != cursor.identity.inode}


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - a path of any bytes, as it was followed
    except OSError:
        return None
