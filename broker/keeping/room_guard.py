"""Keeps the stream from filling the disk: holds its limit down while the disk is short, and gives it back after."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from broker.app.sizes import format_size
from broker.client.connection import Connection
from broker.keeping.room_disk import Disk, Limit, follow, limited, noted
from broker.keeping.room_marks import Bounds, limit_of
from broker.wire.descent import is_being_restored
from broker.wire.streams import STREAM

__all__ = ["DiskGuard"]

logger = logging.getLogger(__name__)


class DiskGuard:
    """The guard of one keeper. Who dies, or keeps the room no more, while the limit is held down leaves it to the next one."""

    def __init__(self, connection: Connection, look: Callable[[], Disk | None]) -> None:
        """Do nothing yet; `look` measures the disk, None where nothing is to stay free."""
        self._connection = connection
        self._look = look
        self._holds = False
        self.missing = 0
        """How many bytes the disk has less than are to stay free, while the limit is held down."""

    async def attend(self, info: Mapping[str, Any]) -> Bounds:
        """Look once, and return what the stream may hold, or might if its limit were not held down.

        `info` is what STREAM.INFO tells. Raises `Rejected`, `ConnectionLost`.
        """
        disk, config = self._look(), info["config"]
        limit = noted(config)
        if disk is None or config.get("discard") != "new":
            wanted = Limit(limit.asked)  # a lower one would have the old ones go
        else:
            wanted = follow(limit, int(info["state"]["bytes"]), disk)
        if wanted != limit and not await self._set(info, wanted):
            return Bounds.of(info)
        holds = disk is not None and wanted.before is not None
        self._say(disk, holds=holds)
        self._holds = holds
        self.missing = disk.reserve - disk.free if disk is not None and holds else 0
        return Bounds(limit_of(wanted.asked), Bounds.of(info).messages)

    def rest(self) -> None:
        """Have nothing to do with it, where the stream is led on another disk by now."""
        self._holds, self.missing = False, 0

    async def _set(self, info: Mapping[str, Any], limit: Limit) -> bool:
        """Set a limit; False where the stream is not as it was any more, to be looked at again."""
        now = await self._connection.api(f"STREAM.INFO.{STREAM}")
        config = now["config"]
        if now["created"] != info["created"] or is_being_restored(config):
            return False
        if noted(config) != noted(info["config"]):
            return False
        await self._connection.api(f"STREAM.UPDATE.{STREAM}", limited(config, limit))
        return True

    def _say(self, disk: Disk | None, *, holds: bool) -> None:
        if disk is not None and holds and not self._holds:
            logger.warning(
                "the disk of the store has %s left, and %s are to stay free: the stream takes no more than it holds, and "
                "hosts wait, until there is space again",
                format_size(disk.free),
                format_size(disk.reserve),
            )
        if self._holds and not holds:
            logger.info("the disk of the store has space again; the stream may grow as before")
