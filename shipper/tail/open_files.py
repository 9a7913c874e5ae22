"""Open files, by identity: no more than a limit, least recently read closed first."""

import errno
import os
import resource
from collections.abc import Collection, Iterable, Mapping, Sequence

from aiofiles.os import wrap

from shipper.tail.decompress import Unpacker
from shipper.tail.identity import HEAD_BYTES
from shipper.tail.probe import close, open_read_only
from shipper.tail.scan import FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Handles", "most_open_files"]

_FEWEST, _MOST = 16, 16_384
_TOO_MANY = {errno.EMFILE, errno.ENFILE}


def _open_if_same(path: str, key: FileKey) -> int | None:
    descriptor = open_read_only(path)
    is_same = False
    try:
        status = os.fstat(descriptor)
        is_same = FileKey(status.st_dev, status.st_ino) == key
    finally:
        if not is_same:
            close(descriptor)
    return descriptor if is_same else None


def _open_all(paths: Sequence[tuple[str, FileKey]]) -> list[int | OSError | None]:
    """Open files in order; each gives a descriptor, None where another file stands, or an error: out of them is the last."""
    opened: list[int | OSError | None] = []
    for path, key in paths:
        try:
            opened.append(_open_if_same(path, key))
        except OSError as error:
            opened.append(error)
            if error.errno in _TOO_MANY:
                break
    return opened


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        close(descriptor)


_open, _close = wrap(_open_all), wrap(_close_all)
_pread = wrap(os.pread)


def most_open_files() -> int:
    """Return how many files may be held open: half of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, soft // 2))


class Handles:
    """The descriptors of followed files; an open one keeps a deleted file readable and its inode from being reused."""

    def __init__(self, limit: int) -> None:
        self._most = self._limit = limit
        self._open: dict[FileKey, int] = {}
        self._unpacked: FileKey | None = None
        self._unpacker: Unpacker | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: FileKey) -> bool:
        return key in self._open

    def opened(self, key: FileKey) -> int | None:
        """Return the descriptor of a file that is open."""
        return self._open.get(key)

    async def descriptor(self, tailer: Tailer) -> int | None:
        """Return the open descriptor of a file, the most recently used from now on.

        None when it is not where it was seen, or may not be read; the tailer's note then says why.
        """
        key = tailer.entry.key
        descriptor = self._open.pop(key, None)
        if descriptor is None:
            await self._open_files([tailer])
        else:
            self._open[key] = descriptor
        return self._open.get(key)

    async def head(self, tailer: Tailer) -> bytes:
        """Return what an open file begins with now, wherever it is; nothing where that cannot be had."""
        descriptor = self._open.get(tailer.entry.key)
        try:
            return b"" if descriptor is None else await _pread(descriptor, HEAD_BYTES, 0)
        except OSError:
            return b""

    @property
    def unpacked(self) -> FileKey | None:
        """Which compressed file is being unpacked."""
        return self._unpacked

    def unpacker(self, tailer: Tailer, descriptor: int) -> Unpacker | None:
        """Return what unpacks an open compressed file; None for any other. One at a time is kept, for its memory."""
        key, packed = tailer.entry.key, tailer.entry.packed
        if packed is None:
            return None
        if self._unpacker is None or self._unpacked != key:
            self._unpacked, self._unpacker = key, Unpacker(descriptor, packed.packing)
        return self._unpacker

    async def open_early(self, tailers: Collection[Tailer]) -> None:
        """Open files while there is room: what is open can be read to its end whatever becomes of its name.

        Also what is written before that; first those that have something to read.
        """
        closed = [tailer for tailer in tailers if tailer.entry.key not in self._open]
        growing = [tailer for tailer in closed if tailer.dirty]
        standing = [t for t in closed if t.entry.is_live and not t.dirty]
        await self._open_files((growing + standing)[: max(0, self._limit - len(self._open))])

    async def trim_excess(self, followed: Mapping[FileKey, Tailer]) -> None:
        """Close what `trim` would, if there are more open files than allowed."""
        if len(self._open) > self._limit:
            await self.trim(followed)

    async def trim(self, followed: Mapping[FileKey, Tailer]) -> None:
        """Close what is followed no longer, and the least recently read above the limit.

        Never a deleted one that is followed yet: it could not be opened again.
        """
        gone = [key for key in self._open if key not in followed]
        if not gone and len(self._open) <= self._limit:
            return
        kept = [key for key in self._open if key in followed]
        standing = [key for key in kept if followed[key].unseen_since is None]
        closing = gone + standing[: max(0, len(kept) - self._limit)]
        if self._unpacked in closing:
            self._unpacked = self._unpacker = None
        await _close([self._open.pop(key) for key in closing])

    async def _open_files(self, tailers: Sequence[Tailer]) -> None:
        if not tailers:
            return
        opened = await _open([(t.entry.path, t.entry.key) for t in tailers])
        for tailer, one in zip(tailers, opened, strict=False):
            match one:
                case int():
                    self._open[tailer.entry.key] = one
                    self._limit = min(self._most, self._limit + 1)  # there are some again
                case None:
                    tailer.note = "was moved since the last look"
                case OSError():
                    if one.errno in _TOO_MANY:
                        self._limit = max(_FEWEST, len(self._open) // 2)  # others need some as well
                    tailer.note = f"cannot be opened: {one.strerror}"
