"""Searches a table, for what is older than the streams."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from nats_logship.client.stream_state import StreamState
from nats_logship.history import History, Line, Order, Query, SearchLimits, by_record
from receiver.search.found import Found
from receiver.search.newer import ChoosePart, StreamPart

_AT_ONCE = 2000  # lines
_LIMITS = SearchLimits(seconds=None, memory=1024 * 1024 * 1024)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TableSide:
    """A version of a table; methods raise what those of `History` raise."""

    history: History
    _other: History | None = None  # for lines around those that `history` finds

    @classmethod
    def open(cls, address: str, options: Mapping[str, str]) -> "TableSide":
        """Open the newest version."""
        return cls(History.open(address, options, _LIMITS))

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return self.history.size

    def close(self) -> None:
        """Close it."""
        self.history.close()
        if self._other is not None:
            self._other.close()

    async def find(
        self, query: Query, most: int | None, order: Order
    ) -> AsyncGenerator[list[Found], None]:
        """Yield what is found, in order."""
        lines = _chunks(self.history.find(query, most, order))
        try:
            while found := await asyncio.to_thread(next, lines, None):
                yield found
        except BaseException:
            self.history.cancel()  # a thread may be at work
            raise

    async def find_around(self, one: Found, most: int) -> tuple[list[Found], list[Found]]:
        """Return the lines before and after a line in its host and file."""
        line, lines = one.as_line(), len(one.split())
        self._other = self._other or self.history.another()
        found = await asyncio.to_thread(self._other.around, line, most, most + lines - 1)
        records = [*by_record(found)]
        before = [Found.from_table(some) for some in records if some[0].order < line.order]
        after = [Found.from_table(some) for some in records if some[0].order > line.order]
        return before[-most:], after[:most]

    def newer(self, state: StreamState) -> StreamPart:
        """Return where the stream goes on behind the table; log what neither of them has."""
        first = self.history.next_sequence(state)
        if first is None:
            return StreamPart(state.first, state.until)
        if first > state.until:
            logger.warning(
                "stream %s ends at sequence %d, but the table has it up to %d: it lost its end",
                *(state.name, state.until - 1, first - 1),
            )
        if first < state.first:
            logger.warning(
                "lines are missing: sequences %d to %d of stream %s were removed before they were "
                "in the table",
                *(first, state.first - 1, state.name),
            )
        return StreamPart(min(max(first, state.first), state.until), state.until)

    def before(self, state: StreamState) -> StreamPart:
        """Return what a stream has from before the table began."""
        return StreamPart(*self.history.range_before(state))

    def newer_than(self, reached: Sequence[tuple[str, int]]) -> ChoosePart:
        """Return a function like `newer`, for streams that were searched up to some sequences."""
        known = dict(reached)

        def find(state: StreamState) -> StreamPart:
            part = self.newer(state)
            return part._replace(first=max(part.first, known.get(state.key, 0)))

        return find


def _chunks(lines: Iterator[Line]) -> Iterator[list[Found]]:
    records = map(Found.from_table, by_record(lines))
    while some := list(islice(records, _AT_ONCE)):
        yield some
