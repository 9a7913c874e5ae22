"""Keeps the positions of a running agent: writes a snapshot about every minute, and forgets files that are long gone."""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Iterable

from broker.client.connection import ConnectionLost, Rejected
from shipper.cursor import Cursor
from shipper.positions import Positions
from shipper.publishing.ownership import fenced_by
from shipper.publishing.snapshots import Outdated, Snapshots
from shipper.publishing.waiting import Waiting
from shipper.shipping import Shipping

__all__ = ["Keeper"]

_EVERY = 60.0  # seconds, of which a random quarter is left out: not all hosts at once
logger = logging.getLogger(__name__)


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
