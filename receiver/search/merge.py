"""Joins lines of several places in the order of their storage."""

from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from sys import maxsize

from receiver.search.found import Found

Groups = AsyncGenerator[list[Found], None]


@dataclass(slots=True)
class Side:
    """Groups of lines in their order; no line that is not taken was stored before `time`."""

    time: int
    groups: Groups
    found: list[Found] = field(default_factory=list)

    async def fetch(self) -> None:
        """Fetch the next group; `time` is `maxsize` if there is none."""
        self.found = await anext(self.groups, [Found("", "", b"", maxsize)])
        self._set_time()

    def take(self, until: int) -> list[Found]:
        """Take what was stored up to a time."""
        end = bisect_right(self.found, until, key=lambda one: one.time or 0)
        taken, self.found = self.found[:end], self.found[end:]
        self._set_time()
        return taken

    def _set_time(self) -> None:
        self.time = (self.found[0].time or 0) if self.found else self.time


async def merge(sides: list[Side]) -> Groups:
    """Yield the lines of all sides in the order of storage."""
    async with AsyncExitStack() as stack:
        for side in sides:
            await stack.enter_async_context(aclosing(side.groups))
        while (side := min(sides, key=lambda one: one.time)).time < maxsize:
            if side.found:
                yield side.take(
                    min((one.time for one in sides if one is not side), default=maxsize)
                )
            else:
                await side.fetch()
