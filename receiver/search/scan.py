"""Searches the lines of a file block by block, with the lines before and after those that match.

RE2 sees whole blocks, and Python only runs of lines that match.
"""

import sys
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

_BLOCK = 512 * 1024  # bytes at a time: they stay in the processor's cache
_LONGEST = 64 * 1024 * 1024  # bytes of a line that is searched as one

Range = tuple[int, int]
Search = Callable[[bytearray, int, int], list[Range]]
"""Returns the half-open ranges of lines that match, of those in a range of a block."""


class ScannedRun(NamedTuple):
    """Lines in a row of a file: those that match, or the context of such.

    If it `begins`, lines were left out before it.
    """

    lines: bytes
    is_context: bool = False
    begins: bool = False


def scan(
    file: IO[bytes], search: Search, context: int, length: int | None = None
) -> Iterator[list[ScannedRun]]:
    """Yield the runs of the lines of a file, of its first `length` bytes, for each block.

    The last line may lack its newline. Raises OSError, and what decompressing raises.
    """
    block = _Block(search, context)
    for end in block.read(file, length):
        yield block.find(end)


class _Block:
    """A part of a file: lines that were searched and may be context, and then new ones."""

    def __init__(self, search: Search, context: int) -> None:
        self._search, self._context = search, context
        self._data = bytearray(_BLOCK)
        self._held = 0  # bytes at the beginning that are from the block before
        self._new = 0  # where the lines begin that were not searched
        self._shown = 0  # where the lines end that were shown
        self._owed = 0  # lines that follow a match in the block before
        self._is_apart = False  # whether lines were left out that are not in the block any more

    def read(self, file: IO[bytes], length: int | None) -> Iterator[int]:
        """Fill the block again and again; yield where its whole lines end."""
        left = sys.maxsize if length is None else length
        while True:
            if len(self._data) - self._held < _BLOCK // 2:
                self._data += bytes(len(self._data))
            end = min(len(self._data), self._held + left)
            with memoryview(self._data) as view, view[self._held : end] as free:
                got = file.readinto(free) if free else 0  # type: ignore[attr-defined] # it has
            left, end = left - got, self._held + got
            cut = self._data.rfind(b"\n", self._held, end) + 1
            if not got:
                del self._data[end:]  # `$` matches here
            if not got or end - self._new > _LONGEST:
                cut = cut or end
            if cut > self._new:
                yield cut
                end = self._move(cut, end)
            if not got:
                return
            self._held = end

    def find(self, end: int) -> list[ScannedRun]:
        """Return the runs of the new lines, those up to `end`."""
        hits, runs = self._search(self._data, self._new, end), list[ScannedRun]()
        if not self._context:
            self._shown = end
            return [ScannedRun(b"".join([self._data[a:b] for a, b in hits]))] if hits else []
        limits = [*(start for start, _ in hits), end]
        self._follow(runs, self._new, limits[0], end)
        for (start, stop), limit in zip(hits, limits[1:], strict=True):
            self._add(runs, max(self._shown, self._back(start)), start, is_context=True)
            self._add(runs, start, stop, is_context=False)
            self._owed = self._context
            self._follow(runs, stop, limit, end)
        return runs

    def _follow(self, runs: list[ScannedRun], start: int, limit: int, end: int) -> None:
        """Add the lines that are owed, at most up to a limit; the rest is in the next block."""
        stop = start
        while self._owed and stop < limit:
            stop = self._data.find(b"\n", stop, end) + 1 or end
            self._owed -= 1
        self._add(runs, start, stop, is_context=True)

    def _back(self, start: int) -> int:
        """Return where the lines of context before a line begin."""
        for _ in range(self._context):
            if start <= self._shown:
                break
            start = self._data.rfind(b"\n", 0, start - 1) + 1
        return start

    def _add(self, runs: list[ScannedRun], start: int, stop: int, *, is_context: bool) -> None:
        if start < stop:
            begins = self._context > 0 and (self._is_apart or start > self._shown)
            runs.append(ScannedRun(bytes(self._data[start:stop]), is_context, begins))
            self._shown, self._is_apart = stop, False

    def _move(self, cut: int, end: int) -> int:
        """Keep what is not searched, and the context before it; return where that ends."""
        begin = max(self._shown, self._back(cut))
        self._is_apart |= begin > self._shown
        self._data[: end - begin] = self._data[begin:end]
        self._new, self._shown = cut - begin, 0
        return end - begin
