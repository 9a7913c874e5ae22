"""Joins what is older and what is newer: each line once, and none is missing.

The version of the table is read before the streams are asked what they hold. So all lines that the
table does not have are in the streams, unless the writer goes on and the broker removes what it
wrote. Then the streams raise `LostSequences`, and the lines between are read from the newer version
of the table. What that does not have either is lost: it is logged, and the search goes on.
"""

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from nats_logship.client.connection import Connection
from nats_logship.client.line_search import LineFilter
from nats_logship.client.ranges import LostSequences
from nats_logship.history import Order, Query
from receiver.search.context import with_context
from receiver.search.found import Found, SearchStatus
from receiver.search.merge import Groups, Side, merge
from receiver.search.newer import Newer, StreamPart
from receiver.search.table import TableSide

Reached = tuple[tuple[str, int], ...]
"""The first sequence of each stream that was not searched."""

logger = logging.getLogger(__name__)


class Finder(Protocol):
    """Finds lines in one place or two; raises `OperatorError` and what asking a broker raises."""

    @property
    def is_incomplete(self) -> bool:
        """Whether lines are missing, as the log says."""

    def find(self, most: int | None) -> Groups:
        """Yield lines in the order of storage; only the first `most` of them are needed."""

    async def find_last(self, most: int) -> list[Found]:
        """Return the last lines in the order of storage."""

    def add_context(self, groups: Groups, most: int) -> Groups:
        """Yield lines with `most` lines of their host and file before and after them."""


@dataclass(frozen=True, slots=True)
class StreamFinder:
    """Finds lines in the streams alone."""

    streams: Newer
    is_incomplete: bool = False

    @classmethod
    async def open(
        cls, connection: Connection, query: Query, status: SearchStatus
    ) -> "StreamFinder":
        """Ask the streams what they hold."""
        streams = Newer(connection, make_filter(query), status)
        await streams.open(
            lambda state: StreamPart(state.first, state.until), query.since, query.until
        )
        return cls(streams)

    def find(self, most: int | None) -> Groups:
        """Yield the lines of all streams in the order of storage."""
        return self.streams.find()

    async def find_last(self, most: int) -> list[Found]:
        """See `Finder`."""
        return await self.streams.find_last(most)

    def add_context(self, groups: Groups, most: int) -> Groups:
        """See `Finder`."""
        return with_context(self, groups, most)

    async def find_around(self, one: Found, most: int) -> tuple[list[Found], list[Found]]:
        """See `Around`."""
        return await self.streams.find_around(one, most)


@dataclass(slots=True)
class TableFinder:
    """Finds lines in a table, and in the streams those that are not in the table."""

    address: str
    options: dict[str, str]
    query: Query
    connection: Connection | None
    status: SearchStatus
    _table: TableSide = field(init=False)
    _before: Newer | None = None  # what the streams have from before the table began
    _after: Newer | None = None

    @property
    def is_incomplete(self) -> bool:
        """See `Finder`."""
        return self._table.is_behind

    async def open(self) -> None:
        """Open the newest version of the table, and then the streams."""
        self._table = await asyncio.to_thread(TableSide.open, self.address, self.options)
        self.status.size += self._table.size
        if self.connection is not None:
            wanted = make_filter(self.query)
            self._after = Newer(self.connection, wanted, self.status)
            await self._open_after(self._after, ())
            self._before = Newer(self.connection, wanted, self.status)
            await self._open_before(self._before)

    async def find(self, most: int | None) -> Groups:
        """See `Finder`."""
        sides = [Side(0, self._search(self._table, self.query, most))]
        if self._before:
            sides.append(Side(0, self._before.find()))
        if self._after:
            sides.append(Side(await self._after.begin(), self._find_after(self._after)))
        async with aclosing(merge(sides)) as groups:
            async for found in groups:
                yield found

    async def find_last(self, most: int) -> list[Found]:
        """See `Finder`."""
        found = await self._find_last_newer(self._after, most) if self._after else []
        query = self.query
        if len(found) == most:  # the table may have newer ones, of another stream
            query = replace(query, since=max(query.since or 0, found[0].time or 0))
        async with aclosing(self._search(self._table, query, most, Order.NEWEST)) as groups:
            found += [one async for some in groups for one in some]
        if self._before:
            found += await self._before.find_last(most)
        return sorted(found, key=lambda one: one.as_line().order)[-most:]

    def add_context(self, groups: Groups, most: int) -> Groups:
        """See `Finder`."""
        return with_context(self, groups, most)

    async def find_around(self, one: Found, most: int) -> tuple[list[Found], list[Found]]:
        """See `Around`."""
        before, after = await self._table.find_around(one, most)
        if self._after and len(after) < most:
            more_before, more_after = await self._after.find_around(one, most)
            before, after = [*before, *more_before], [*after, *more_after]
        if self._before and len(before) < most:
            more_before, more_after = await self._before.find_around(one, most)
            before, after = [*more_before, *before], [*more_after, *after]
        before, after = (
            sorted(some, key=lambda line: line.as_line().order) for some in (before, after)
        )
        return before[-most:], after[:most]

    async def _find_last_newer(self, streams: Newer, most: int) -> list[Found]:
        """Return the last lines of the streams; read the table again if it has some of them now.

        Then all of their lines are searched again, and a second loss is accepted.
        """
        with suppress(LostSequences):
            return await streams.find_last(most)
        await self._open_again(streams)
        if self._before:
            await self._open_before(self._before)
        with suppress(LostSequences):
            return await streams.find_last(most)
        _allow_loss(streams)
        return await streams.find_last(most)

    async def _find_after(self, streams: Newer) -> Groups:
        """Yield what is newer than the table, also if the writer goes on and it is removed."""
        with suppress(LostSequences):
            async with aclosing(streams.find()) as groups:
                async for found in groups:
                    yield found
            return
        reached = await self._open_again(streams)
        query = replace(self.query, following=reached)
        sides = [
            Side(0, self._search(self._table, query, None)),
            Side(await streams.begin(), self._find_after(streams)),
        ]
        async with aclosing(merge(sides)) as groups:
            async for found in groups:
                yield found

    async def _open_again(self, streams: Newer) -> Reached:
        """Open the newest version of the table, and the streams again; return what was searched."""
        reached = streams.reached()
        await asyncio.to_thread(self._table.close)
        self._table = await asyncio.to_thread(TableSide.open, self.address, self.options)
        await self._open_after(streams, reached)
        if self._table.is_behind:  # it will not have what is removed next, either
            _allow_loss(streams)
        return reached

    async def _open_after(self, streams: Newer, reached: Reached) -> None:
        choose, query = self._table.newer_than(reached), self.query
        await streams.open(choose, query.since, query.until, is_seam=True)

    async def _open_before(self, streams: Newer) -> None:
        await streams.open(self._table.before, self.query.since, self.query.until)

    async def _search(
        self, table: TableSide, query: Query, most: int | None, order: Order = Order.OLDEST
    ) -> Groups:
        read = 0
        async with aclosing(table.find(query, most, order)) as groups:
            async for found in groups:
                progress = table.progress
                self.status.show(self.status.read + progress.bytes - read, progress.until)
                read = progress.bytes
                yield found


def make_filter(query: Query) -> LineFilter:
    """Return the filter of a stream's lines for a query."""
    return LineFilter(query.selection, match=query.match, level=query.level)


def _allow_loss(streams: Newer) -> None:
    """Log that lines may be missing, and have the streams searched behind them."""
    streams.allow_loss()
    logger.warning(
        "lines may be missing: a stream removes messages before they are searched or in the table"
    )
