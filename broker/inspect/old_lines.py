"""Lines of a table, which may be older than the streams: read in a thread, one search at a time.

A client that reads slowly keeps no other search waiting.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from broker.inspect.ranges import StreamRange
from broker.inspect.windows import WindowFound, shorten
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
async def open_table(table: str) -> AsyncGenerator[History, None]:
    """Open the newest version of a table; raises `OperatorError`, which may be of our settings."""
    history = await ask(History.open, table, None, _LIMITS)
    try:
        yield history
    finally:  # a thread may still search for a page that was closed
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
    history: History, work: Callable[[], Value]
) -> AsyncGenerator[tuple[SearchProgress, Value | None], None]:
    """Yield the progress of a search in a thread, at last with its result.

    The search ends with the generator. Raises what `work` raises.
    """
    history.progress = SearchProgress()
    running = asyncio.ensure_future(ask(work))
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=_REPORTED)
            yield history.progress, running.result() if running.done() else None
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


def find_in_table(history: History, query: Query, most: int, order: Order) -> WindowFound:
    """Return the first lines, or records, in an order."""
    return WindowFound(join_records(history.find(query, most, order)))


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


def count_in_table(history: History, query: Query, step: int) -> WindowFound:
    """Count the lines of a query in steps of so many nanoseconds."""
    result = WindowFound()
    for (time, level), lines in history.count(query, step).items():
        result.counts[time, _SEVERITIES.get(level, 0)] += lines
    return result
