"""Lines for a page: those of a range of time, then new ones; and the lines around one.

With a table, lines come from there, and from the streams those that are newer. A page that closes
ends its search. `search` and `around` raise `OperatorError`, `ConnectionLost`, `Rejected`, and
ValueError for what a page must not ask.
"""

import asyncio
import glob
import math
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from broker.console.request import MOST_LINES, LineRequest
from broker.console.stream import Found, StreamRange, filters_of, search_messages, search_streams
from broker.console.table import count_severities, join_records, open_table, run
from broker.inspect.reader import MessageReader, follow, get_message
from broker.inspect.streams import list_streams, read_known_layout
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import EARLIEST, EPOCH, LATEST, SECOND, Moment
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.find import StreamMessage, find_message, resolve_moment
from nats_logship.client.stream_reader import at_sequence
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.history import History, Line, Order, Query

Document = dict[str, Any]
_LONGEST = 16 * 1024  # bytes shown of a line
_MOST_BYTES = 1024 * 1024  # of new lines for a page, per second
_LATE = 10.0  # seconds that new lines may be late before some are skipped
_AROUND_PATIENCE = 15.0  # seconds for the lines before one, and for those after it
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(slots=True)
class _Search:
    """A search that runs; times are in nanoseconds, and what is read is in bytes."""

    request: LineRequest
    ranges: list[StreamRange]
    history: History | None
    since: int
    until: int
    step: int
    wanted: int
    read: int = 0

    @property
    def left(self) -> int:
        """The bytes of the streams that are not searched."""
        return sum(one.size for one in self.ranges)

    def document(self, found: Found, read: int, of: int) -> Document:
        """Return what was found, and that so many bytes are searched."""
        self.wanted -= len(found.lines)
        is_newest = self.request.order is Order.NEWEST
        return {
            "older" if is_newest else "lines": list(map(describe_line, found.lines)),
            "counts": _list_counts(found, self.step),
            "progress": {"read": read, "of": of, "until": found.until / 1e6},
        }


class Lines:
    """Finds lines for all pages: at a broker, and in a table if there is one."""

    def __init__(self, connection: Connection, table: str = "") -> None:
        """Ask nothing yet."""
        self._connection, self._table = connection, table

    async def search(self, request: LineRequest) -> AsyncGenerator[Document, None]:
        """Yield documents for a page: lines, counts and progress; then new lines, if wanted."""
        states = await self._read_states()
        async with AsyncExitStack() as stack:
            history, note = None, ""
            try:
                if self._table:
                    history = await stack.enter_async_context(open_table(self._table))
            except OperatorError as error:
                note = f"only the stream is searched: {error}"
            search = await self._begin(request, states, history)
            shown = {"from": search.since, "to": search.until, "step": search.step}
            yield {"range": {name: time / 1e6 for name, time in shown.items()}, "note": note}
            parts = [self._search_streams(search), self._search_table(search)]
            for part in parts if request.order is Order.NEWEST else reversed(parts):
                async with aclosing(part) as documents:
                    async for document in documents:
                        yield document
        yield {"searched": True, "follows": request.is_followed, "ended": not request.is_followed}
        if request.is_followed:
            async with aclosing(self._follow(request, states)) as documents:
                async for document in documents:
                    yield document

    async def around(self, key: str, most: int) -> Document:
        """Return a line by its key, and at most so many before and after it in its host and file."""
        stream, sequence, pos = _parse_key(key)
        states = await self._read_states()
        state = next((one for one in states if f"{one.name}/{one.created}" == stream), None)
        async with AsyncExitStack() as stack:
            history = None
            if self._table:
                history = await stack.enter_async_context(open_table(self._table))
            if state and state.first <= sequence < state.until:
                before, line, after = await self._around_in_stream(state, sequence, pos, most)
                if history and len(before) < most:
                    oldest = (before or [line])[0]
                    some = await asyncio.to_thread(history.around, oldest, most - len(before), 0)
                    before = [
                        one for one in join_records(some) if one.place < oldest.place
                    ] + before
            elif history and (found := await asyncio.to_thread(history.get, stream, sequence, pos)):
                some = join_records(await asyncio.to_thread(history.around, found, most, most))
                place = max(n for n, one in enumerate(some) if one.place <= found.place)
                before, line, after = some[:place], some[place], some[place + 1 :]
            else:
                raise OperatorError("this line is no longer in the stream, nor in a table")
        lines = [*before[-most:], line, *after[:most]]
        return {"lines": list(map(describe_line, lines)), "chosen": len(before[-most:])}

    async def _read_states(self) -> list[StreamState]:
        ask = partial(retry_until_answered, self._connection, patience=ELECTION)
        names = await ask(list_streams)
        return [await ask(partial(get_stream_state, name=name)) for name in names]

    async def _begin(
        self, request: LineRequest, states: Sequence[StreamState], history: History | None
    ) -> _Search:
        since = await self._find_time(request.since, states)
        until = await self._find_time(request.until, states)
        ranges = [await self._make_range(one, since, until) for one in states]
        for one in ranges if history else ():
            assert history
            newer = history.next_sequence(one.state.name, one.state.created) or 0
            one.first = max(one.first, newer)
        now = (datetime.now(UTC) - EPOCH) // timedelta(microseconds=1) * 1000  # noqa: TID251
        end = now if until is None else until
        begin = await self._find_begin(states, history, end) if since is None else since
        step = _choose_step(end - begin, request.buckets)
        begin = begin // step * step
        return _Search(request, ranges, history, begin, end, step, request.most)

    async def _find_time(self, moment: Moment | None, states: Sequence[StreamState]) -> int | None:
        """Return a moment in nanoseconds; that of a sequence is that of its message."""
        if isinstance(moment, datetime):
            return (moment - EPOCH) // timedelta(microseconds=1) * 1000
        for state in states if moment else ():
            if found := await self._find(state, moment or 0):
                return found.stored_at
        return None

    async def _find(self, state: StreamState, sequence: int) -> StreamMessage | None:
        request = {"seq": max(1, sequence), "next_by_subj": ">"}
        return await find_message(self._connection, state.name, request)

    async def _find_begin(
        self, states: Sequence[StreamState], history: History | None, end: int
    ) -> int:
        """Return the time of the oldest line."""
        if history and (oldest := await asyncio.to_thread(_find_oldest, history)):
            return oldest.time
        found = [await self._find(one, one.first) for one in states if one.messages]
        return min((one.stored_at for one in found if one), default=end - SECOND)

    async def _make_range(
        self, state: StreamState, since: int | None, until: int | None
    ) -> StreamRange:
        ends = []
        for time, default in ((since, EARLIEST), (until, LATEST)):
            moment = default if time is None else EPOCH + timedelta(microseconds=time // 1000)
            ends.append(await resolve_moment(self._connection, moment, state))
        return StreamRange(state, max(state.first, ends[0]), ends[1])

    async def _search_streams(self, search: _Search) -> AsyncGenerator[Document, None]:
        request, before, size = search.request, search.read, search.left
        found = search_streams(
            self._connection, search.ranges, request.query, request.order, search.wanted
        )
        async with aclosing(found) as windows:
            async for window in windows:
                search.read = before + size - search.left
                yield search.document(window, search.read, before + size)
                if search.wanted <= 0 and not request.buckets:
                    return

    async def _search_table(self, search: _Search) -> AsyncGenerator[Document, None]:
        history, request = search.history, search.request
        if history is None:
            return
        query = replace(request.query, since=search.since, until=search.until)
        works = []
        if search.wanted > 0:
            works.append(lambda: [*history.find(query, search.wanted, request.order)])
        if request.buckets:
            steps = max(1, -(-(search.until - search.since) // search.step))
            works.append(partial(history.count, query, steps))
        for work in works:
            before, rest = search.read, search.left
            async for progress, found in run(history, work):
                search.read = before + progress.bytes
                shown = Found(until=progress.until or 0)
                if isinstance(found, list):
                    shown.lines = join_records(found)
                elif found:
                    shown.counts = count_severities(found)
                yield search.document(shown, search.read, before + progress.of + rest)

    async def _follow(
        self, request: LineRequest, states: Sequence[StreamState]
    ) -> AsyncGenerator[Document, None]:
        """Yield new lines, at most a thousand a second; say so if lines were skipped."""
        clock = asyncio.get_running_loop().time
        layout = await read_known_layout(self._connection)
        while True:
            names = {one.name: f"{one.name}/{one.created}" for one in states}
            began = clock()
            async with AsyncExitStack() as stack:
                readers = [self._reader(one, request.query.selection) for one in states]
                for one in readers:
                    stack.push_async_callback(one.close)
                pace = _Pace(clock)
                async for some in follow(readers):
                    stream = layout.stream_of(some[0].subject.partition) if some[0].subject else ""
                    search = (some, names.get(stream, stream), request.query, Order.OLDEST)
                    found = await asyncio.to_thread(search_messages, *search, pace.left)
                    lines = list(map(describe_line, found.lines))
                    yield {"lines": lines, "counts": _list_counts(found, SECOND)}
                    if pace.is_exceeded(found.lines, some[-1].stored_at):
                        break
            await asyncio.sleep(max(0.0, began + 1.0 - clock()))
            yield {"sampled": True}
            states = await self._read_states()

    def _reader(self, state: StreamState, selection: LineSelection) -> MessageReader:
        start = at_sequence(state.until)
        return MessageReader(self._connection, state.name, start, filters_of(selection))

    async def _around_in_stream(
        self, state: StreamState, sequence: int, pos: int, most: int
    ) -> tuple[list[Line], Line, list[Line]]:
        """Return a line, and those before and after it; fewer if they are not found in time."""
        message = await get_message(self._connection, state.name, sequence)
        whole = StreamRange(state, sequence, sequence + 1)
        of_all = await asyncio.to_thread(
            search_messages, [message], whole.name, Query(), Order.OLDEST, sys.maxsize
        )
        at = max((n for n, one in enumerate(of_all.lines) if one.pos <= pos), default=None)
        if at is None:
            raise OperatorError("this message holds no such line")
        line = of_all.lines[at]
        beside = [
            [one for one in some if one.file == line.file]
            for some in (of_all.lines[:at], of_all.lines[at + 1 :])
        ]
        files = (glob.escape(line.file),) if line.file else ()
        query = Query(LineSelection((line.host,), files))
        sides = ((state.first, sequence, Order.NEWEST), (sequence + 1, state.until, Order.OLDEST))
        for found, (first, until, order) in zip(beside, sides, strict=True):
            part = StreamRange(state, first, until)
            with suppress(TimeoutError):
                async with asyncio.timeout(_AROUND_PATIENCE):
                    await self._collect(found, part, query, order, most)
        return beside[0], line, beside[1]

    async def _collect(
        self, found: list[Line], part: StreamRange, query: Query, order: Order, most: int
    ) -> None:
        """Add lines of a range of a stream until there are so many."""
        if len(found) >= most:
            return
        search = search_streams(self._connection, [part], query, order, most - len(found))
        async with aclosing(search) as windows:
            async for window in windows:
                found[:] = sorted([*found, *window.lines], key=lambda one: one.place)
                if len(found) >= most:
                    return


@dataclass(slots=True)
class _Pace:
    """Counts what is shown in a second, and how late it is."""

    clock: Callable[[], float]
    began: float = 0.0
    lines: int = 0
    size: int = 0
    newest: float = float("-inf")

    @property
    def left(self) -> int:
        """How many more lines may be shown."""
        return MOST_LINES - self.lines

    def is_exceeded(self, shown: Sequence[Line], stored_at: int) -> bool:
        """Count lines, the last one stored at a time; whether some must be skipped."""
        now = self.clock()
        if now - self.began >= 1.0:
            self.began, self.lines, self.size = now, 0, 0
        self.lines += len(shown)
        self.size += sum(min(_LONGEST, len(one.line)) for one in shown)
        # by our clock; the message that came with the least delay tells how the clocks differ
        delay = stored_at / SECOND - now
        self.newest = max(self.newest, delay)
        return self.left <= 0 or self.size >= _MOST_BYTES or self.newest - delay > _LATE


def describe_line(line: Line) -> Document:
    """Return a line, or a record, as pages show it; bytes that are not UTF-8 are surrogates."""
    more = len(line.line) - _LONGEST
    rest = f" … and {more:,} bytes more" if more > 0 else ""
    return {
        "key": f"{line.stream}:{line.sequence}:{line.pos}",
        "time": line.time / 1e6,
        "host": line.host,
        "file": line.file,
        "level": line.level,
        "text": line.line[:_LONGEST].decode("utf-8", "surrogateescape") + rest,
    }


def _list_counts(found: Found, step: int) -> list[tuple[float, int, int]]:
    """Return numbers of lines by the begin of a step in milliseconds, and by severity."""
    counts: Counter[tuple[int, int]] = Counter()
    for (time, severity), number in found.counts.items():
        counts[time // step * step, severity] += number
    return [(time / 1e6, severity, number) for (time, severity), number in counts.items()]


def _choose_step(length: int, buckets: int) -> int:
    """Return the length of a bucket, so that there are about so many of them."""
    seconds = length / SECOND / max(1, buckets)
    return next((one for one in _STEPS if one >= seconds), math.ceil(seconds)) * SECOND


def _find_oldest(history: History) -> Line | None:
    return next(iter([*history.find(Query(), 1, Order.OLDEST)]), None)


def _parse_key(text: str) -> tuple[str, int, int]:
    stream, _, rest = text.rpartition(":")[0].rpartition(":")
    pos = text.rpartition(":")[2]
    if not (rest + pos).isascii() or not (rest.isdigit() and pos.isdigit() and len(text) < 200):
        raise ValueError(f"{text[:200]!r} is not the key of a line")
    return stream, int(rest), int(pos)
