"""Searches a table, for what is older than the streams."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from nats_logship.client.stream_state import StreamState
from nats_logship.history import (
    History,
    Line,
    Order,
    Query,
    SearchLimits,
    SearchProgress,
    by_record,
)
from receiver.search.found import Found
from receiver.search.newer import ChoosePart, StreamPart

_AT_ONCE = 2000  # lines
_LIMITS = SearchLimits(seconds=None, memory=1024 * 1024 * 1024)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TableSide:
    """A version of a table; methods raise what those of `History` raise."""

    history: History  # `find` uses another one: lines around what it finds are asked meanwhile
    progress: SearchProgress = field(default_factory=SearchProgress)
    """How far `find` is."""
    is_behind: bool = False
    """Whether a stream has removed lines that the table does not have."""

    @classmethod
    def open(cls, address: str, options: Mapping[str, str]) -> "TableSide":
        """Open the newest version."""
        return cls(History.open(address, options, _LIMITS))

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return self.history.size

    def close(self) -> None:
        """Close it; a `find` that is at work goes on."""
        self.history.close()

    async def find(
        self, query: Query, most: int | None, order: Order
    ) -> AsyncGenerator[list[Found], None]:
        """Yield what is found, in order."""
        history = await asyncio.to_thread(self.history.another)
        lines = _chunks(history.find(query, most, order))
        try:
            while found := await asyncio.to_thread(next, lines, None):
                self.progress = history.progress
                yield found
        finally:  # a thread may be at work
            await asyncio.to_thread(history.close)

    async def find_around(self, one: Found, most: int) -> tuple[list[Found], list[Found]]:
        """Return the lines before and after a line in its host and file; a record counts as one."""
        line = one.as_line()
        found = await asyncio.to_thread(self.history.around, line, most, most)
        records = [*by_record(found)]
        before = [Found.from_table(some) for some in records if some[0].order < line.order]
        after = [Found.from_table(some) for some in records if some[0].order > line.order]
        return before[-most:], after[:most]

    def before(self, state: StreamState) -> StreamPart:
        """Return what a stream has from before the table began."""
        return StreamPart(*self.history.range_before(state))

    def newer_than(self, reached: Sequence[tuple[str, int]]) -> ChoosePart:
        """Return a function for what is newer than the table, and was not searched.

        It returns where a stream goes on behind the table, and behind the sequence up to which it
        was searched; it logs what neither of them has.
        """
        known = dict(reached)
        return lambda state: self._newer(state, known.get(state.key, 0))

    def _newer(self, state: StreamState, reached: int) -> StreamPart:
        first = max(self.history.next_sequence(state) or 0, reached) or state.first
        if first > state.until:
            logger.warning(
                "stream %s ends at sequence %d, but the table has it up to %d: it lost its end",
                *(state.name, state.until - 1, first - 1),
            )
        if first < state.first:
            self.is_behind = True
            logger.warning(
                "lines are missing: sequences %d to %d of stream %s were removed before they were "
                "in the table",
                *(first, state.first - 1, state.name),
            )
        return StreamPart(min(max(first, state.first), state.until), state.until)


def _chunks(lines: Iterator[Line]) -> Iterator[list[Found]]:
    records = map(Found.from_table, by_record(lines))
    while some := list(islice(records, _AT_ONCE)):
        yield some
