"""Keeps the positions of a running agent: saves them about once a second, and forgets files that are long gone."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

from shipper.cache import Cache
from shipper.cursor import Cursor
from shipper.positions import Positions
from shipper.shipping import Shipping

__all__ = ["Keeper"]

_SAVE_EVERY, _SAVE_AT_LEAST_EVERY = 1.0, 10.0  # seconds; those of many files take a while to write
_SHARE = 100
_FORGET_EVERY = 60.0  # seconds
_GROWTH = 256  # files, that rotation leaves behind; sooner than that there is nothing to gain
logger = logging.getLogger(__name__)


class Keeper:
    """Writes what a shipping has safely stored; a disk that is full is said once and costs nothing but a re-read."""

    def __init__(self, cache: Cache, clock: Callable[[], int]) -> None:
        """Remember where to save; `clock` is nanoseconds since the epoch."""
        self._cache = cache
        self._clock = clock
        self._complained = False
        self._saving = asyncio.Lock()

    async def run(self, shipping: Shipping) -> None:
        """Save until cancelled."""
        forgotten, remembered = float("-inf"), 0
        while True:
            now = asyncio.get_running_loop().time()
            grown = len(shipping.positions.files) > remembered + _GROWTH
            # before it is, files that are there are not followed yet, and none would seem to be wanted
            if shipping.is_oriented and (grown or now - forgotten >= _FORGET_EVERY):
                await self._forget(shipping)
                forgotten, remembered = now, len(shipping.positions.files)
            began = asyncio.get_running_loop().time()
            await self.save(shipping.positions)
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(min(_SAVE_AT_LEAST_EVERY, max(_SAVE_EVERY, _SHARE * took)))

    async def save(self, positions: Positions) -> None:
        """Save now, behind the saves that are under way: what is on the disk last is what was given last."""
        try:
            async with self._saving:
                await asyncio.to_thread(self._cache.save, positions)
        except OSError as error:
            if not self._complained:
                logger.warning("cannot save the positions: %s; the stream has them too", error)
            self._complained = True
        else:
            self._complained = False

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
