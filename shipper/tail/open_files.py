"""Open files, by identity: no more than a limit, least recently read closed first."""

import asyncio
import errno
import os
import resource
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from shipper.tail.decompress import Decompressor
from shipper.tail.identity import HEAD_BYTES, close, open_read_only
from shipper.tail.scan import FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Handles", "most_open_files"]

_TOO_MANY = {errno.EMFILE, errno.ENFILE}


def most_open_files() -> int:
    """Return how many files may be held open: half of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 16_384 if soft == resource.RLIM_INFINITY else max(16, min(16_384, soft // 2))


class Handles:
    """The descriptors of the `followed` files; an open one keeps a deleted file readable and its inode from being reused."""

    def __init__(self, limit: int, followed: Mapping[FileKey, Tailer]) -> None:
        self._limit = limit
        self._followed = followed
        self._open: dict[FileKey, int] = {}
        self._decompressor: tuple[FileKey, Decompressor] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: FileKey) -> bool:
        return key in self._open

    def opened(self, key: FileKey) -> int | None:
        """Return the descriptor of a file that is open."""
        return self._open.get(key)

    async def open(self, tailers: Iterable[Tailer]) -> None:
        """Open files, the most recently read from now on; the note of a tailer says why its file is not open after this."""
        wanted = {tailer.entry.key: tailer for tailer in tailers}
        again = [key for key in wanted if key in self._open]
        self._open.update([(key, self._open.pop(key)) for key in again])
        await self._open_files([tailer for key, tailer in wanted.items() if key not in self._open])
        if len(self._open) > self._limit:
            await self._trim(self._limit, wanted)

    async def open_early(self, stored: Callable[[str], int]) -> None:
        """Open files while there is room: what is open can be read to its end whatever becomes of its name.

        Also what is written before that, and what was read and is not stored; first those that have something to read.
        """
        closed = [t for key, t in self._followed.items() if key not in self._open]
        wanted = [
            tailer
            for tailer in closed
            if tailer.dirty or tailer.entry.is_live or not tailer.is_stored(stored(tailer.file))
        ]
        wanted.sort(key=lambda tailer: not tailer.dirty)
        await self._open_files(wanted[: max(0, self._limit - len(self._open))])

    async def head(self, tailer: Tailer) -> bytes:
        """Return what an open file begins with now, wherever it is; nothing where that cannot be had."""
        try:
            return await asyncio.to_thread(os.pread, self._open[tailer.entry.key], HEAD_BYTES, 0)
        except OSError:
            return b""

    def decompressor(self, tailer: Tailer) -> Decompressor | None:
        """Return what decompresses an open compressed file; None for any other. One at a time is kept, for its memory."""
        key, packed = tailer.entry.key, tailer.entry.packed
        if packed is None:
            return None
        if self._decompressor is None or self._decompressor[0] != key:
            self._decompressor = key, Decompressor(self._open[key], packed.packing)
        return self._decompressor[1]

    async def trim(self) -> None:
        """Close what is followed no longer, and the least recently read above the limit."""
        await self._trim(self._limit)

    async def close(self) -> None:
        """Close all."""
        await self._close(list(self._open))

    async def _trim(self, limit: int, wanted: Container[FileKey] = ()) -> None:
        followed = self._followed
        gone = [key for key in self._open if key not in followed]
        kept = [key for key in self._open if key in followed and key not in wanted]
        # never a deleted one: it could not be opened again
        named = [key for key in kept if followed[key].unseen_since is None]
        await self._close(gone + named[: max(0, len(self._open) - len(gone) - limit)])

    async def _close(self, keys: Collection[FileKey]) -> None:
        if self._decompressor is not None and self._decompressor[0] in keys:
            self._decompressor = None
        if keys:
            await asyncio.to_thread(_close_all, [self._open.pop(key) for key in keys])

    async def _open_files(self, tailers: Sequence[Tailer]) -> None:
        if not tailers:
            return
        opened = await asyncio.to_thread(_open_all, [(t.entry.path, t.entry.key) for t in tailers])
        for tailer, one in zip(tailers, opened, strict=False):
            match one:
                case int():
                    self._open[tailer.entry.key] = one
                case None:
                    tailer.note = "was moved since the last look"
                case OSError():
                    tailer.note = f"cannot be opened: {one.strerror}"
        if isinstance(opened[-1], OSError) and opened[-1].errno in _TOO_MANY:
            await self._trim(len(self._open) // 2)  # others need some as well


def _open_all(paths: Sequence[tuple[str, FileKey]]) -> list[int | OSError | None]:
    """Open files in order; each gives a descriptor, None where another file is, or an error: out of them is the last."""
    opened: list[int | OSError | None] = []
    for path, key in paths:
        try:
            opened.append(_open_if_same(path, key))
        except OSError as error:
            opened.append(error)
            if error.errno in _TOO_MANY:
                break
    return opened


def _open_if_same(path: str, key: FileKey) -> int | None:
    descriptor = open_read_only(path)
    is_same = False
    try:
        is_same = FileKey.of(os.fstat(descriptor)) == key
    finally:
        if not is_same:
            close(descriptor)
    return descriptor if is_same else None


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        close(descriptor)
