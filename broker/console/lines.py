"""Lines for a page: those of a range of time, then new ones; and the lines around one.

With a table, lines come from there, and from the streams those that are newer. A page that closes
ends its search. `search` and `around` raise `OperatorError`, `ConnectionLost`, `Rejected`, and
ValueError for what a page must not ask.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.console.request import MOST_LINES, LineRequest
from broker.inspect import old_lines
from broker.inspect.around import LineKey, find_around
from broker.inspect.ranges import (
    StreamRange,
    check_is_held,
    choose_step,
    find_first_time,
    find_range,
    find_time,
    format_position,
    read_states,
)
from broker.inspect.windows import WindowFound, follow_streams, now, search_streams
from nats_logship.app.exits import OperatorError
from nats_logship.app.timestamps import SECOND
from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState
from nats_logship.history import History, Line, Order, Query

Document = dict[str, Any]


@dataclass(slots=True)
class _Search:
    """A search that runs; times are in nanoseconds, and what is read is in bytes."""

    request: LineRequest
    ranges: list[StreamRange]  # newer than the table, or all of the streams
    table: old_lines.TableSearch | None
    since: int
    end: int  # of the axis
    step: int
    wanted: int
    trouble: OperatorError | None = None  # of lines of the table that the streams' are merged with
    read: int = 0

    @property
    def left(self) -> int:
        """The bytes of the streams that are not searched."""
        return sum(one.size for one in (*self.ranges, *(self.table.older if self.table else ())))

    @property
    def is_done(self) -> bool:
        """Whether nothing else is wanted."""
        return self.wanted <= 0 and not self.request.buckets

    def document(self, found: WindowFound, read: int, of: int) -> Document:
        """Return what was found, and that so many bytes are searched."""
        self.wanted -= len(found.lines)
        is_newest = self.request.order is Order.NEWEST
        return {
            "older" if is_newest else "lines": list(map(describe_line, found.lines)),
            "counts": found.list_counts(self.step),
            "progress": {"read": read, "of": of, "until": found.until / 1e6},
        }


class LineFinder:
    """Finds lines for all pages: at a broker, and in a table if there is one."""

    def __init__(self, connection: Connection, table: str = "") -> None:
        """Ask nothing yet."""
        self._connection, self._table = connection, table

    async def search(self, request: LineRequest) -> AsyncGenerator[Document, None]:
        """Yield documents for a page: lines, counts and progress; then new lines, if wanted."""
        async with old_lines.open_table(self._table) as (history, note):
            states = await read_states(self._connection)  # later: they have all that it has
            search = await self._begin(request, states, history)
            since, step = search.since, search.step
            axis = {"from": since // step * step, "since": since, "to": search.end, "step": step}
            yield {"range": {name: at / 1e6 for name, at in axis.items()}, "note": note}  # in ms
            for part in self._list_parts(search):
                if search.is_done:
                    break
                trouble = search.trouble
                async with aclosing(part) as documents:
                    async for document in documents:
                        yield document
                if trouble:
                    raise trouble
        position, follows = format_position(states), request.is_followed
        yield {"searched": True, "follows": follows, "ended": not follows, "id": position}
        if follows:
            async with aclosing(self.follow(request, position)) as documents:
                async for document in documents:
                    yield document

    async def follow(self, request: LineRequest, position: str) -> AsyncGenerator[Document, None]:
        """Yield what each second adds behind a position; say so if lines were skipped."""
        found = follow_streams(self._connection, position, request.wanted, MOST_LINES)
        async with aclosing(found) as windows:
            async for window in windows:
                lines, counts = map(describe_line, window.lines), window.list_counts(SECOND)
                new = {"lines": [*lines], "counts": counts, "id": window.position}
                yield new | ({"sampled": True} if window.skips else {})

    async def around(self, key: str, most: int) -> Document:
        """Return a line by its key, and so many before and after it in its host and file."""
        async with old_lines.open_table(self._table) as (history, _):
            found = find_around(self._connection, history, LineKey.parse(key), most)
            before, line, after = await found
        lines = list(map(describe_line, [*before, line, *after]))
        return {"lines": lines, "chosen": len(before)}

    async def _begin(
        self, request: LineRequest, states: Sequence[StreamState], history: History | None
    ) -> _Search:
        ask = partial(find_time, self._connection, states)
        since, until = await ask(request.since), await ask(request.until)
        if request.since and since is None:
            what = f"sequence {request.since} is beyond the end"
            raise ValueError(f"since: {what}; a date has hyphens, as 2026-11-20")
        if history:
            check_is_held(states, request.since, request.until)
        begin, end = since, now() if until is None else until
        if not begin:
            oldest = await old_lines.ask(old_lines.find_begin, history) if history else None
            held = [StreamRange(one, one.first, one.until) for one in states]
            first = await find_first_time(self._connection, held)
            begin = min((one for one in (oldest, first) if one is not None), default=end - SECOND)
            end = max(end, begin) if until is None else end  # our clock may be behind the broker's
        if begin > end:
            raise ValueError("since is in the future" if until is None else "until is before since")
        step = choose_step(end - begin, request.buckets)
        ends = {"since": begin if since else None, "until": until}
        ranges = [await find_range(self._connection, one, **ends) for one in states]
        table, wanted = None, request.wanted
        if history:
            query = Query(wanted.selection, begin, until, wanted.match, wanted.level)
            table = old_lines.TableSearch(history, query, request.order, step)
            table = await table.plan(self._connection, ranges)
        return _Search(request, ranges, table, begin, end, step, request.most)

    def _list_parts(self, search: _Search) -> list[AsyncGenerator[Document, None]]:
        table, between = search.table, list[Line]()
        newer = [self._search_streams(search, search.ranges, between)]
        if table is None:
            return newer
        if table.seam is not None:
            newer.insert(0, self._search_table(search, table.find_between, between))
        older = [self._search_table(search, table.find_older)]
        older.append(self._search_streams(search, table.older))
        counted = [self._search_table(search, table.count)] if search.request.buckets else []
        if table.order is Order.NEWEST:
            return [*newer, *older, *counted]
        return [*reversed(older), *newer, *counted]

    async def _search_streams(
        self, search: _Search, ranges: list[StreamRange], between: Sequence[Line] = ()
    ) -> AsyncGenerator[Document, None]:
        request, all_of_it = search.request, search.read + search.left
        found = search_streams(
            self._connection, ranges, request.wanted, request.order, search.wanted, between
        )
        async with aclosing(found) as windows:
            async for window in windows:
                search.read = all_of_it - search.left
                yield search.document(window, search.read, all_of_it)
                if search.is_done:
                    return

    async def _search_table(
        self,
        search: _Search,
        find: Callable[[int], Iterator[WindowFound]],
        kept: list[Line] | None = None,
    ) -> AsyncGenerator[Document, None]:
        assert search.table
        before, rest = search.read, search.left
        try:
            async for progress, found in old_lines.run(search.table.history, find(search.wanted)):
                search.read = before + progress.bytes
                if kept is not None:  # until these are merged
                    kept += found.lines
                    found.lines = []
                yield search.document(found, search.read, before + progress.of + rest)
        except OperatorError as error:
            if kept is None:
                raise
            search.trouble = error


def describe_line(line: Line) -> Document:
    """Return a line, or a record, as pages show it; bytes that are not UTF-8 are surrogates."""
    rest = " … goes on in a later message" if line.is_piece else ""
    return {
        "key": str(LineKey.of(line)),
        "time": line.time / 1e6,
        "host": line.host,
        "file": line.file,
        "level": line.level,
        "text": line.line.decode("utf-8", "surrogateescape") + rest,
    }
