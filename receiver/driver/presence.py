"""The sign of life of a receiver: it answers whoever asks, and costs nothing while nobody does.

Its address stands in the entries of its partitions only when it has heard itself: who may not subscribe is not taken for
dead.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY

__all__ = ["Life", "Presence", "life_of", "report_of"]

_PREFIX = "logship.receiver."
_INBOXES = ("_INBOX", "_R_.")  # the second of who asks from another account
_LOOK = 2.0  # seconds between looks whether the connection is still the one that we answer on
_PATIENCE = 2.0  # seconds for an answer

logger = logging.getLogger(__name__)


class Life(Enum):
    """What asking an owner has shown."""

    ALIVE = "alive"
    NOBODY = "nobody"
    """The broker answers that nobody listens at its address, or nobody answered in time."""
    UNKNOWN = "unknown"
    """The broker itself does not answer."""


class Presence:
    """The address at which one receiver answers."""

    def __init__(self, connection: Connection, report: Callable[[], bytes]) -> None:
        """Answer nobody yet; `report` says what whoever asks is told."""
        self._connection = connection
        self._report = report
        self._name = ""
        self._client: object = None
        self.address = ""

    async def begin(self) -> None:
        """Answer from now on, and set `address` if that can be heard; says so if not."""
        life = Life.UNKNOWN
        while life is Life.UNKNOWN:
            try:
                await self._subscribe()
            except ConnectionLost:
                continue  # a new connection is waited for
            life = await life_of(self._connection, self._name)
            if await self._connection.client() is not self._client:
                life = Life.UNKNOWN  # the line broke in between, and what we subscribed to with it
        if life is Life.ALIVE:
            self.address = self._name
        else:
            logger.warning(
                "nobody hears %s%s: without the right to subscribe there no --standby can take over from this receiver",
                _PREFIX,
                self._name,
            )

    async def last(self) -> None:
        """Go on answering through new connections; never returns."""
        while True:
            await asyncio.sleep(_LOOK)
            if await self._connection.client() is not self._client:
                try:
                    await self._subscribe()
                except ConnectionLost:
                    continue

    async def _subscribe(self) -> None:
        client = await self._connection.client()
        self._name = self._name or self._connection.private()
        await self._connection.subscribe(f"{_PREFIX}{self._name}", self._answer)
        self._client = client

    async def _answer(self, message: Message) -> None:
        # whoever asks may have us answer to any subject, those included that only we have the right to
        if message.reply.startswith(_INBOXES):
            try:
                await self._connection.publish(message.reply, self._report())
            except ConnectionLost:
                return  # that's fine: whoever asked asks again


async def report_of(connection: Connection, name: str) -> bytes | None:
    """Return what a receiver says of itself at its address; None when nobody answers."""
    try:
        return bytes((await connection.request(f"{_PREFIX}{name}", patience=_PATIENCE)).data)
    except (Rejected, ConnectionLost):
        return None


async def life_of(connection: Connection, name: str) -> Life:
    """Ask a receiver at its address, and the broker itself where none answers."""
    try:
        await connection.request(f"{_PREFIX}{name}", patience=_PATIENCE)
    except Rejected:
        return Life.NOBODY
    except ConnectionLost:
        return await _nobody_or_nothing(connection)
    return Life.ALIVE


async def _nobody_or_nothing(connection: Connection) -> Life:
    try:
        async with asyncio.timeout(_PATIENCE):
            await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    except (ConnectionLost, Rejected, TimeoutError):
        return Life.UNKNOWN
    return Life.NOBODY
