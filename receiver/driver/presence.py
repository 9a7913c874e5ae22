"""Who owns a partition, and does it live? A receiver answers whoever asks; a standby asks, and never takes from a living one.

Answering costs nothing while nobody asks. A receiver's address stands in the entries of its partitions only when it has
heard itself: who may not subscribe is not taken for dead.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, PARTITIONS_KEY, offset_key
from receiver.driver.jobs import unless

__all__ = ["Presence", "Standby", "is_gone", "report_of"]

_PREFIX = "logship.receiver."
_INBOXES = ("_INBOX", "_R_.")  # the second of who asks from another account
_LOOK = 2.0  # seconds between looks whether the connection is still the one that we answer on
_PATIENCE = 2.0  # seconds for an answer
_STANDBY_LOOK = 1.0  # seconds between questions of a standby

logger = logging.getLogger(__name__)


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
        while True:
            try:
                await self._subscribe()
                await self._connection.request(f"{_PREFIX}{self._name}", patience=_PATIENCE)
            except ConnectionLost:
                continue  # a new connection is waited for
            except Rejected:
                if await self._connection.client() is not self._client:
                    continue  # the line broke in between, and what we subscribed to with it
                logger.warning(
                    "nobody hears %s%s: without the right to subscribe there no --standby can take over from this receiver",
                    *(_PREFIX, self._name),
                )
                return
            self.address = self._name
            return

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


async def is_gone(connection: Connection, name: str) -> bool:
    """Whether nobody answers at the address of a receiver, though the broker does."""
    try:
        await connection.request(f"{_PREFIX}{name}", patience=_PATIENCE)
    except Rejected:
        return True
    except ConnectionLost:
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
                return True
    return False


class Standby:
    """One partition as somebody sees it who would own it."""

    def __init__(
        self,
        connection: Connection,
        partition: int,
        silence: float,
        seen: Callable[[str], None],
    ) -> None:
        """Take an owner for gone after so many seconds without an answer and without a commit.

        `seen` is called with the name of the owner at each look.
        """
        self._connection = connection
        self._partition = partition
        self._silence = silence
        self._seen = seen
        self._told = ""

    async def wait(self, stop: asyncio.Event) -> int | None:
        """Return the revision at which the partition is free, to be claimed at that only; None when told to stop."""
        clock = asyncio.get_running_loop().time
        seen, since = -1, clock()
        while not stop.is_set():
            entry = await self._entry()
            if entry is None:
                seen = -1
            elif (offset := _owned(entry)) is None:
                return entry.revision
            elif await self._may_live(offset) or entry.revision != seen:
                seen, since = entry.revision, clock()
            elif clock() - since >= self._silence:
                logger.warning(
                    "partition %d: its owner has not answered for %g s; taking over",
                    *(self._partition, self._silence),
                )
                return entry.revision
            await unless(stop, asyncio.sleep(_STANDBY_LOOK))
        return None

    async def _entry(self) -> bucket.Entry | None:
        """Return the entry, one without a revision where there is none; None when the broker does not say."""
        try:
            await self._connection.client()
            entry = await bucket.read(self._connection, OFFSETS_BUCKET, offset_key(self._partition))
        except ConnectionLost:
            return None
        except Rejected as error:
            self._say(
                f"the broker refuses: {error}; run `logbroker apply`; waiting", logging.WARNING
            )
            return None
        return entry or bucket.Entry(b"", 0)

    async def _may_live(self, offset: Offset) -> bool:
        """Whether the owner answers, or cannot be asked."""
        self._seen(offset.owner)
        if not offset.presence:
            self._say(
                f"{offset.owner} cannot be asked whether it lives: it is taken over by hand only"
            )
            return True
        self._say(f"standing by behind {offset.owner}")
        return not await is_gone(self._connection, offset.presence)

    def _say(self, words: str, level: int = logging.INFO) -> None:
        if words != self._told:
            logger.log(level, "partition %d: %s", self._partition, words)
        self._told = words


def _owned(entry: bucket.Entry) -> Offset | None:
    """Return the offset of a partition that somebody owns, None where nobody does."""
    try:
        offset = Offset.decode(entry.value) if entry.revision else None
    except UnreadableOffset:
        return None  # the claim says what is to be done about it
    return None if offset is None or offset.is_moved or offset.released else offset
