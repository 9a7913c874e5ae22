"""Keeps the stream from filling the disk: holds its limit down while the disk is short, and gives it back after."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from broker.connecting.connection import Connection
from broker.keeping.room_disk import Disk, Limit, follow
from broker.keeping.room_marks import Bounds, limit_of
from broker.sizes import format_size
from broker.topology import STREAM

__all__ = ["DiskGuard"]

logger = logging.getLogger(__name__)


class DiskGuard:
    """The guard of one keeper. Who dies while the limit is held down leaves it to the next start, which sets it anew."""

    def __init__(self, connection: Connection, look: Callable[[], Disk | None]) -> None:
        """Do nothing yet; `look` measures the disk, None where nothing is to stay free."""
        self._connection = connection
        self._look = look
        self._held_down: Limit | None = None
        self.missing = 0
        """How many bytes the disk has less than are to stay free, while the limit is held down."""

    async def attend(self, info: Mapping[str, Any]) -> Bounds:
        """Look once, and return what the stream may hold, or might if its limit were not held down.

        `info` is what STREAM.INFO tells. Raises `Rejected`, `ConnectionLost`.
        """
        disk = self._look()
        config = info["config"]
        if (
            disk is None or config.get("discard") != "new"
        ):  # a lower limit would have the old ones go
            return Bounds.of(info)
        now = int(config.get("max_bytes", -1))
        limit = self._held_down
        if limit is None or limit.now != now:
            limit = Limit(now)
        wanted = follow(limit, int(info["state"]["bytes"]), disk)
        if wanted.now != now:
            await self._connection.api(
                f"STREAM.UPDATE.{STREAM}", {**config, "max_bytes": wanted.now}
            )
        self._say(disk, wanted)
        self._held_down = None if wanted.before is None else wanted
        self.missing = 0 if wanted.before is None else disk.reserve - disk.free
        asked = wanted.now if wanted.before is None else wanted.before
        return Bounds(limit_of(asked), Bounds.of(info).messages)

    async def release(self, info: Mapping[str, Any]) -> None:
        """Give the limit back where the stream is led on another disk by now, whose keeper knows of no other limit.

        `info` is what STREAM.INFO tells. Raises `Rejected`, `ConnectionLost`: to be called again then.
        """
        limit, config = self._held_down, info["config"]
        if limit is not None and limit.now == int(config.get("max_bytes", -1)):
            await self._connection.api(
                f"STREAM.UPDATE.{STREAM}", {**config, "max_bytes": limit.before}
            )
        self._held_down, self.missing = None, 0

    def _say(self, disk: Disk, wanted: Limit) -> None:
        if self._held_down is None and wanted.before is not None:
            logger.warning(
                "the disk of the store has %s left, and %s are to stay free: the stream takes no more than it holds, and "
                "hosts wait, until there is space again",
                format_size(disk.free),
                format_size(disk.reserve),
            )
        if self._held_down is not None and wanted.before is None:
            logger.info("the disk of the store has space again; the stream may grow as before")
