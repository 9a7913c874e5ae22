"""Waits beside the owner of a partition until it is gone. Never takes from a living one."""

import asyncio
import logging
from collections.abc import Callable

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.driver.patience import pause
from receiver.driver.presence import Life, life_of

__all__ = ["Standby"]

_LOOK = 1.0  # seconds between questions

logger = logging.getLogger(__name__)


class Standby:
    """One partition as somebody sees it who would own it."""

    def __init__(
        self,
        connection: Connection,
        partition: int,
        silence: float,
        clock: Callable[[], float],
        seen: Callable[[str], None],
    ) -> None:
        """Take an owner for gone after so many seconds without an answer and without a commit.

        `seen` is called with the name of the owner at each look.
        """
        self._connection = connection
        self._partition = partition
        self._silence = silence
        self._clock = clock
        self._seen = seen
        self._told = ""

    async def wait(self, stop: asyncio.Event) -> int | None:
        """Return the revision at which the partition is free, to be claimed at that only; None when told to stop."""
        seen, since = -1, self._clock()
        while not stop.is_set():
            entry = await self._entry()
            if entry is not None:
                life = await self._life(entry)
                if life is None:
                    return entry.revision
                if life is not Life.NOBODY or entry.revision != seen:
                    seen, since = entry.revision, self._clock()
                elif self._clock() - since >= self._silence:
                    logger.warning(
                        "partition %d: its owner has not answered for %g s; taking over",
                        self._partition,
                        self._silence,
                    )
                    return entry.revision
            else:
                seen = -1
            await pause(stop, _LOOK)
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

    async def _life(self, entry: bucket.Entry) -> Life | None:
        """Return whether the owner lives; None when there is none."""
        try:
            offset = Offset.decode(entry.value) if entry.revision else None
        except UnreadableOffset:
            return None  # the claim says what is to be done about it
        if offset is None or offset.is_moved or offset.released:
            return None
        self._seen(offset.owner)
        if not offset.presence:
            self._say(
                f"{offset.owner} cannot be asked whether it lives: it is taken over by hand only"
            )
            return Life.UNKNOWN
        self._say(f"standing by behind {offset.owner}")
        return await life_of(self._connection, offset.presence)

    def _say(self, words: str, level: int = logging.INFO) -> None:
        if words != self._told:
            logger.log(level, "partition %d: %s", self._partition, words)
        self._told = words
