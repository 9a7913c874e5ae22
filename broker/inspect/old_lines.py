"""Lines of a table, which may be older than the streams: read in a thread, one search at a time.

A client that reads slowly keeps no other search waiting.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from broker.inspect.ranges import StreamRange, find_first_time
from broker.inspect.windows import WindowFound, shorten
from nats_logship.app.exits import OperatorError
from nats_logship.client.connection import Connection
from nats_logship.history import (
    History,
    Line,
    Order,
    Query,
    SearchLimits,
    SearchProgress,
    by_record,
)

Value = TypeVar("Value")
_LIMITS = SearchLimits(seconds=120.0, memory=256 * 1024 * 1024)
_REPORTED = 0.3  # seconds between two reports of progress
_SEVERITIES = {"warning": 1, "error": 2, "critical": 2}
_one_search = asyncio.Semaphore(1)  # each takes much memory


@asynccontextmanager
async def open_table(table: str) -> AsyncGenerator[tuple[History | None, str], None]:
    """Open the newest version of a table, if one is named; yield it, or why it cannot be read."""
    history, note = None, ""
    try:
        history = await ask(History.open, table, None, _LIMITS) if table else None
    except OperatorError as error:
        note = f"only the stream is searched: {error}"
    try:
        yield history, note
    finally:  # a thread may still search for a page that was closed
        if history:
            await asyncio.to_thread(history.close)


async def ask(work: Callable[..., Value], *arguments: Any) -> Value:
    """Search in a thread when no other search does; raises what `work` raises."""
    await _one_search.acquire()
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    running.add_done_callback(_let_go)
    return await asyncio.shield(running)  # who is cancelled lets go when the thread has ended


def _let_go(ended: asyncio.Future[Any]) -> None:
    _one_search.release()
    if not ended.cancelled():
        ended.exception()  # nobody else asks for it if the page was closed


async def run(
    history: History, steps: Iterator[WindowFound]
) -> AsyncGenerator[tuple[SearchProgress, WindowFound], None]:
    """Yield the progress of a search in a thread, and what its steps have found since the last one.

    The search ends with the generator. Raises what `steps` raise, behind what they have found.
    """
    history.progress = SearchProgress()
    found = deque[WindowFound]()
    running = asyncio.ensure_future(ask(found.extend, steps))
    try:
        is_done = False
        while not is_done:
            await asyncio.wait({running}, timeout=_REPORTED)
            is_done, progress = running.done(), history.progress
            total = WindowFound(until=progress.until or 0)
            while found:
                some = found.popleft()
                total.counts += some.counts
                total.lines += some.lines
            total.lines.sort(key=lambda one: one.order)
            yield progress, total
        running.result()
    finally:
        if not running.done():
            history.cancel()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def leave_to_table(history: History, ranges: Iterable[StreamRange]) -> list[StreamRange]:
    """Cut ranges to what is newer than the table; return what is from before the table began."""
    older = []
    for one in ranges:
        _, until = history.range_before(one.state)
        older.append(StreamRange(one.state, one.first, max(one.first, min(one.until, until))))
        one.first = max(one.first, history.next_sequence(one.state) or 0)
    return older


def join_records(lines: Iterable[Line]) -> list[Line]:
    """Return lines as pages show them: the oldest first, a record as one."""
    return [
        some[0]._replace(
            line=shorten(b"\n".join(one.line for one in some)), is_piece=some[-1].is_piece
        )
        for some in by_record(sorted(lines, key=lambda one: one.order))
    ]


def find_begin(history: History) -> int | None:
    """Return the time of the oldest line of a table, in nanoseconds; None without lines."""
    return min((one.time for one in history.find(Query(), 1, Order.OLDEST)), default=None)


@dataclass(frozen=True, slots=True)
class TableSearch:
    """What a page asks of a table; methods yield what steps of a search find, for `run`.

    The table lags behind each stream by another time: since the `seam` it has some lines, and the
    streams others. The ranges `older` are from before the table began.
    """

    history: History
    query: Query
    order: Order
    step: int  # of the counts, in nanoseconds
    older: list[StreamRange] = field(default_factory=list)
    seam: int | None = None

    async def plan(self, connection: Connection, ranges: Sequence[StreamRange]) -> "TableSearch":
        """Cut ranges to what is newer than the table, and find the seam and what is older."""
        older = await ask(leave_to_table, self.history, ranges)
        first = await find_first_time(connection, ranges)
        seam = first if first is not None and first <= self.history.ends else None
        return replace(self, older=older, seam=seam)

    def find_between(self, most: int) -> Iterator[WindowFound]:
        """Yield the first lines, or records, since the seam."""
        return self._find(replace(self.query, since=self.seam), most)

    def find_older(self, most: int) -> Iterator[WindowFound]:
        """Yield the first lines, or records, from before the seam."""
        until = self.query.until if self.seam is None else self.seam
        return self._find(replace(self.query, until=until), most)

    def _find(self, query: Query, most: int) -> Iterator[WindowFound]:
        for some in self.history.find_first(query, most, self.order) if most > 0 else ():
            yield WindowFound(join_records(some))

    def count(self, _: int = 0) -> Iterator[WindowFound]:
        """Count all lines, in steps of time."""
        for counts in self.history.count_in_steps(self.query, self.step):
            result = WindowFound()
            for (time, level), lines in counts.items():
                result.counts[time, _SEVERITIES.get(level, 0)] += lines
            yield result
