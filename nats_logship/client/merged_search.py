"""Finds lines in several streams, in the order of their storage: a host may move between them."""

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from heapq import merge
from sys import maxsize
from typing import NamedTuple

from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import FoundLines
from nats_logship.client.line_search import LineFilter, SearchedRun, search
from nats_logship.client.ranges import LostSequences, SequenceRange


class MergedRun(NamedTuple):
    """What was found, with the number of the range; a range was searched up to `following`.

    `size` are the bytes of messages since the last report, and `stored_at` is the time of the last
    one; 0 if there is none.
    """

    found: list[tuple[int, FoundLines]]
    size: int = 0
    stored_at: int = 0
    following: tuple[int, ...] = ()


@dataclass(slots=True)
class _Side:
    number: int
    runs: AsyncGenerator[SearchedRun, None]
    following: int
    reached: int = 0  # the time up to which all is found
    found: deque[FoundLines] = field(default_factory=deque)

    async def advance(self) -> SearchedRun:
        run = await anext(self.runs, None)
        if run is None:
            self.reached = maxsize
            return SearchedRun([], 0, self.following)
        self.found += run.found
        self.following = run.following
        self.reached = max(self.reached, run.stored_at)
        return run

    def take(self, until: int) -> list[tuple[int, int, FoundLines]]:
        """Take what was stored up to a time."""
        taken = []
        while self.found and self.found[0].stored_at <= until:
            one = self.found.popleft()
            taken.append((one.stored_at, self.number, one))
        return taken


async def search_all(
    connection: Connection, parts: Sequence[tuple[SequenceRange, LineFilter]]
) -> AsyncGenerator[MergedRun, None]:
    """Yield what is found in ranges of streams, each with its filter. Raises as `search`.

    Before `LostSequences` all lines are yielded that were found up to `following`.
    """
    async with AsyncExitStack() as stack:
        sides = []
        for number, (item, wanted) in enumerate(parts):
            runs = await stack.enter_async_context(aclosing(search(connection, item, wanted)))
            sides.append(_Side(number, runs, item.first))
        while any(one.reached < maxsize for one in sides):
            left = [one for one in sides if one.reached < maxsize]
            try:
                run = await min(left, key=lambda one: one.reached).advance()
            except LostSequences:
                yield _merge(sides, maxsize, SearchedRun([], 0, 0))
                raise
            # alone, a stream need not wait
            until = min(one.reached for one in sides) if len(left) > 1 else maxsize
            yield _merge(sides, until, run)


def _merge(sides: Sequence[_Side], until: int, run: SearchedRun) -> MergedRun:
    taken = merge(*(one.take(until) for one in sides), key=lambda one: one[:2])
    found = [(number, one) for _, number, one in taken]
    return MergedRun(found, run.size, run.stored_at, tuple(one.following for one in sides))
