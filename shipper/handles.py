"""Open files, by identity: no more than a limit, least recently read closed first."""

import os
from collections.abc import Collection

import aiofiles
from aiofiles.os import wrap
from aiofiles.threadpool.binary import AsyncFileIO

from shipper.sampling import open_read_only
from shipper.sighting import FileKey
from shipper.tailer import Tailer

__all__ = ["Handles"]

_fstat = wrap(os.fstat)


class Handles:
    """The descriptors of followed files; an open one keeps a deleted file readable and its inode from being reused."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[FileKey, AsyncFileIO] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: FileKey) -> bool:
        return key in self._open

    @property
    def has_room(self) -> bool:
        """Whether another file may be opened without closing one."""
        return len(self._open) < self._limit

    async def descriptor(self, tailer: Tailer) -> int | None:
        """Return the open descriptor of a file, the most recently used from now on.

        None when it is not where it was seen, or may not be read; the tailer's note then says why.
        """
        key = tailer.sighting.key
        handle = self._open.pop(key, None) or await self._open_file(tailer)
        if handle is None:
            return None
        self._open[key] = handle
        return int(handle.fileno())

    async def trim(self, followed: Collection[FileKey]) -> None:
        """Close what is followed no longer, and the least recently read above the limit."""
        gone = [key for key in self._open if key not in followed]
        kept = [key for key in self._open if key in followed]
        for key in gone + kept[: max(0, len(kept) - self._limit)]:
            await self._open.pop(key).close()

    async def _open_file(self, tailer: Tailer) -> AsyncFileIO | None:
        try:
            handle = await aiofiles.open(
                tailer.sighting.path, "rb", buffering=0, opener=open_read_only
            )
        except OSError as error:
            tailer.note = f"cannot be opened: {error.strerror}"
            return None
        status = await _fstat(handle.fileno())
        if FileKey(status.st_dev, status.st_ino) != tailer.sighting.key:
            await handle.close()
            tailer.note = "was moved since the last look"
            return None
        return handle
