"""What an agent works with from one claim to the loss of it: its id, where it publishes, the positions."""

import asyncio
import itertools
import logging
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable

from broker.client.connection import Connection, Denied, Rejected
from broker.client.credentials import verify
from broker.wire.positions import Cursor, Positions
from shipper.publish.claim import Claimant
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import AgentId, HostMessages
from shipper.publish.publisher import Publisher
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.waiting import Waiting, reason_of
from shipper.settings import ShipperSettings
from shipper.shipping import Shipping
from shipper.status.live import require_alone

__all__ = [
    "SNAPSHOT_EVERY",
    "Sessions",
    "connection_for",
    "keep_positions",
    "reasons_for",
]

SNAPSHOT_EVERY = 60.0
"""Seconds, of which a random quarter is left out: not all hosts at once."""
logger = logging.getLogger(__name__)


def connection_for(settings: ShipperSettings, host: str) -> Connection:
    """Return the connection of a host's shipper; raises `ConfigurationError` when the means of getting in cannot be used."""
    verify(settings.access)
    return Connection(settings.server, f"logshipper {host}", settings.access)


def reasons_for(settings: ShipperSettings, host: str) -> Callable[[Rejected], str]:
    """Return what says why the broker refuses something to the shipper of a host: a credential may be another host's."""
    owner = str(settings.from_file.get("host", ""))

    def explain(error: Rejected) -> str:
        if isinstance(error, Denied) and owner not in {"", host}:
            return (
                f"the credential is for host {owner}, but --host is {host}: "
                f"use the credential of {host}, or --host {owner}"
            )
        return reason_of(error)

    return explain


class Sessions:
    """Opens the sessions of a run, one after the other, with what all of them share.

    `publish`, `agent`, `stream` and `max_payload`, what the broker takes at a time in bytes, are those of the newest.
    """

    def __init__(self, settings: ShipperSettings, host: str, clock: Callable[[], int]) -> None:
        """Open none yet; `clock` is nanoseconds since the epoch."""
        self.connection = connection = connection_for(settings, host)
        self.waiting = waiting = Waiting(reasons_for(settings, host))
        self.snapshots = Snapshots(connection, host)
        self.config = config = BrokerConfig(connection, host, clock)
        self._settings = settings
        self._host = host
        self.agent = self._run = AgentId.following(None, clock() // 1_000_000, secrets.token_hex(4))
        self.stream, self.max_payload = "", 0
        self._numbers = itertools.count(1)
        self._messages, tag = HostMessages(connection, host, 1), self._run.tag
        self._claimant = Claimant(self._messages, self.snapshots, waiting, tag, clock)
        self._publisher = publisher = Publisher(connection, config, waiting)
        self.publish: Callable[[Round], Awaitable[int]] = (
            publisher.publish if settings.ack else publisher.publish_unacknowledged
        )

    def new_file(self) -> str:
        """Return an id for a file that was never followed."""
        return f"{self._run}.{next(self._numbers)}"

    def most_bytes(self, wanted: int) -> int:
        """Return so many bytes of lines, or fewer where a message would not take them with a last newline that is added."""
        return min(wanted, self.max_payload - 1)

    async def open(self, known: Positions) -> Positions:
        """Claim the host's subjects, behind a pause, and return the positions; without acknowledgements there is nothing to claim.

        `known` are the positions of the session before. Raises `OperatorError` before the first claim when another agent of
        the host lives on this machine, `FencedError` when a newer one does anywhere.
        """
        config, waiting, settings = self.config, self.waiting, self._settings
        await waiting.until_answered(config.read)
        while settings.ack and config.pause:  # else rounds wait, but files are followed
            await config.until_resumed()
            await waiting.until_answered(config.read)
        is_next = bool(known.files or known.covered)
        if not (settings.take_over or is_next):
            await require_alone(self._host, config.partitions.time)
        self.max_payload = await self._publisher.largest()
        self._messages.streams = config.streams
        self.stream = self._messages.stream_of(config.subject)
        if not settings.ack:
            return known if is_next else await waiting.until_answered(self.snapshots.read)
        owned = await self._claimant.claim(config.subject, known)
        self._publisher.begin(owned.subject, owned.last)
        self.agent = owned.agent
        logger.info("agent %s ships on %s", owned.agent, owned.subject)
        return owned.positions


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
