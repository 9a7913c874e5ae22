"""Searches the streams for a page, window by window, from the newest or the oldest message on.

A window is a range of time, so that several streams are searched side by side. What is found
becomes lines and counts in threads. A record of several lines is one `Line`, with newlines in it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from broker.inspect.ranges import StreamRange, format_position, move_to, read_states
from nats_logship.app.timestamps import SECOND, to_datetime, to_nanoseconds
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.find import find_message, find_sequence
from nats_logship.client.found_lines import FoundLines, OpenRecords
from nats_logship.client.line_search import (
    LineFilter,
    SearchedRun,
    search_on,
    select_held,
)
from nats_logship.client.ranges import SequenceRange
from nats_logship.history import Line, Order
from nats_logship.wire.levels import find_level, level_runs
from nats_logship.wire.stream_message import StreamMessage

_FIRST_WINDOW = 64  # messages of the fullest stream
_WIDER = 4  # each window covers so many times more messages
_LARGEST_WINDOW = 16_384
_PATIENCE = 10 * SECOND  # for the rest of a record that is new
_MOST_BYTES = 1024 * 1024  # of new lines per second
_LARGEST_OF_HOST = 1_000_000  # where the broker selects the messages of one host
_QUICK = 1.0  # seconds of a window, up to which the next one may be larger
_LONGEST = 16 * 1024  # bytes kept of a line


@dataclass(slots=True)
class WindowFound:
    """The lines that are wanted, the oldest first, and the numbers of all lines that fit.

    `counts` are by the time of storage, in nanoseconds and in whole seconds, and by severity: 2 for
    errors, 1 for warnings, 0 for others. `until` is the time that the search has reached, 0 if that
    is unknown. With `skips` lines were left out behind these. New lines are followed on from
    `position`.
    """

    lines: list[Line] = field(default_factory=list)
    counts: Counter[tuple[int, int]] = field(default_factory=Counter)
    until: int = 0
    skips: bool = False
    position: str = ""

    def list_counts(self, step: int) -> list[tuple[float, int, int]]:
        """Return numbers of lines by the begin of a step in milliseconds, and by severity."""
        counts: Counter[tuple[int, int]] = Counter()
        for (time, severity), number in self.counts.items():
            counts[time // step * step, severity] += number
        return [(time / 1e6, severity, number) for (time, severity), number in counts.items()]


async def search_streams(
    connection: Connection,
    ranges: Sequence[StreamRange],
    wanted: LineFilter,
    order: Order,
    most: int,
    between: Iterable[Line] = (),
) -> AsyncGenerator[WindowFound, None]:
    """Yield what each window has: in all at most `most` lines. Takes the windows from the ranges.

    Lines from elsewhere come `between` those of the streams, by their times.

    Raises `OperatorError`, `ConnectionLost`, `Rejected`.
    """
    window, largest = _FIRST_WINDOW, _LARGEST_OF_HOST if wanted.only_host else _LARGEST_WINDOW
    wholes, clock = [(one.first, one.until) for one in ranges], asyncio.get_running_loop().time
    while any(one.first < one.until for one in ranges):
        began = clock()
        parts, until = await _take_window(connection, ranges, order, window)
        total = WindowFound(until=until)
        for one, part, whole in zip(ranges, parts, wholes, strict=True):
            searched = search_on(connection, part, wanted, one.opened)
            if order is Order.NEWEST:
                first = max(whole[0], part.first - window // _WIDER)
                ends = first, min(whole[1], part.until + largest)
                searched = _search_apart(connection, part, wanted, one, ends)
            async with aclosing(searched) as runs:
                async for run in runs:
                    await _add(total, run.found, (one.state.key, order, most))
        some, between = _split(between, until, order)
        total.lines = _keep([*total.lines, *some], order, most)
        most -= len(total.lines)
        if window < _LARGEST_WINDOW or clock() - began < _QUICK:  # each reports how far it is
            window = min(largest, window * _WIDER)
        yield total
    total = WindowFound()
    for one in ranges:
        held = select_held(one.opened, wanted, one.waits_from)
        await _add(total, held, (one.state.key, order, most))
    if total.lines:
        yield total


async def follow_streams(
    connection: Connection, position: str, wanted: LineFilter, most: int
) -> AsyncGenerator[WindowFound, None]:
    """Yield what each second adds to streams behind a position, about `most` lines and 1 MiB.

    Raises the same, and ValueError for what is no position.
    """
    opened = defaultdict[str, OpenRecords](OpenRecords)
    states = move_to(position, await read_states(connection))
    while True:
        await asyncio.sleep(1.0)
        known, waits_from = {one.key: one.until for one in states}, now() - _PATIENCE
        states, total, size = await read_states(connection), WindowFound(), 0
        ranges = [
            StreamRange(one, known.get(one.key, one.first), one.until, opened[one.key], waits_from)
            for one in states
        ]
        found = search_streams(connection, ranges, wanted, Order.OLDEST, most)
        async with aclosing(found) as windows:
            async for window in windows:
                total.lines += window.lines
                total.counts += window.counts
                size += sum(len(one.line) for one in window.lines)
                total.skips = len(total.lines) >= most or size >= _MOST_BYTES
                if total.skips:
                    states = await read_states(connection)
                    break
        total.position = format_position(states)
        yield total


def now() -> int:
    """Return the time in nanoseconds since the epoch."""
    return to_nanoseconds(datetime.now(UTC))  # noqa: TID251 - for axes, and for new lines


async def _add(
    total: WindowFound, found: Sequence[FoundLines], how: tuple[str, Order, int]
) -> None:
    if found:
        some = await asyncio.to_thread(summarize, found, *how)
        total.counts += some.counts
        total.lines = _keep(total.lines + some.lines, *how[1:])


def _split(lines: Iterable[Line], until: int, order: Order) -> tuple[list[Line], list[Line]]:
    """Return the lines up to a time in an order, 0 meaning all, and the others."""
    sides: tuple[list[Line], list[Line]] = ([], [])
    for one in lines:
        is_older = one.time < until
        sides[bool(until) and is_older is (order is Order.NEWEST)].append(one)
    return sides


async def _search_apart(
    connection: Connection,
    part: SequenceRange,
    wanted: LineFilter,
    whole: StreamRange,
    ends: tuple[int, int],
) -> AsyncGenerator[SearchedRun, None]:
    """Yield what begins in a part of a range, with the rest of a record that goes on behind it.

    Messages before the part say which of its lines are such a rest. If they are too few for that,
    the rest is found alone; the parts before this one do not join it again.
    """
    known = whole.opened.alone or {}
    opened = OpenRecords(known)
    for first, until in ((ends[0], part.until), (part.until, ends[1])):
        item = replace(part, first=first, until=until)
        async with aclosing(search_on(connection, item, wanted, opened)) as runs:
            async for run in runs:
                found = [one for one in run.found if part.first <= one.sequence < part.until]
                yield run._replace(found=found)
                if first == part.until and not opened.has_begun(part.first, part.until):
                    break
        if not opened.has_begun(part.first, part.until):
            break
    held = select_held(opened, wanted)
    found = [one for one in held if part.first <= one.sequence < part.until]
    yield SearchedRun(found, 0, part.until)
    ours = {key: at for key, (n, at) in opened.firsts.items() if part.first <= n < part.until}
    whole.opened = OpenRecords({**known, **ours})


def _keep(lines: list[Line], order: Order, most: int) -> list[Line]:
    lines.sort(key=lambda one: one.order)
    return lines[:most] if order is Order.OLDEST else lines[max(0, len(lines) - most) :]


async def _take_window(
    connection: Connection, ranges: Sequence[StreamRange], order: Order, window: int
) -> tuple[list[SequenceRange], int]:
    """Take a window from the ranges; return its part of each, and the time that it reaches."""
    fullest = max(ranges, key=lambda one: one.until - one.first)
    cut = fullest.until - window if order is Order.NEWEST else fullest.first + window
    at: StreamMessage | None = None
    if fullest.first < cut < fullest.until:
        request = {"seq": cut, "next_by_subj": ">"}
        ask = partial(find_message, stream=fullest.state.name, request=request)
        at = await retry_until_answered(connection, ask, ELECTION)
    parts = []
    for one in ranges:
        middle = one.first if order is Order.NEWEST else one.until
        if at is not None:
            middle = cut if one is fullest else await _find_cut(connection, one, at.stored_at)
        ends = (middle, one.until) if order is Order.NEWEST else (one.first, middle)
        parts.append(SequenceRange(">", *ends, one.state.name))
        if order is Order.NEWEST:
            one.until = middle
        else:
            one.first = middle
    return parts, at.stored_at if at else 0


async def _find_cut(connection: Connection, one: StreamRange, time: int) -> int:
    ask = partial(find_sequence, stream=one.state.name, time=to_datetime(time))
    found = await retry_until_answered(connection, ask, ELECTION)
    return max(one.first, min(one.until, one.until if found is None else found))


def summarize(found: Sequence[FoundLines], stream: str, order: Order, most: int) -> WindowFound:
    """Return the first or the last `most` lines, or few more, and count all."""
    result = WindowFound(counts=_count(found))
    for some in found if order is Order.OLDEST else reversed(found):
        if most <= 0:
            break
        parts = some.first(most) if order is Order.OLDEST else some.last(most)
        lines = [make_line(one, stream) for one in parts]
        result.lines += lines
        most -= len(lines)
    result.lines.sort(key=lambda one: one.order)
    return result


def _count(found: Iterable[FoundLines]) -> Counter[tuple[int, int]]:
    """Count all lines of a second at once: messages may be small."""
    by_second: dict[int, list[bytes]] = {}
    for some in found:
        parts = by_second.setdefault(some.stored_at // SECOND * SECOND, [])
        parts.append(some.lines if some.lines.endswith(b"\n") else some.lines + b"\n")
    counts: Counter[tuple[int, int]] = Counter()
    for second, parts in by_second.items():
        lines = b"".join(parts)
        bad = len(level_runs("warning", lines, 0, len(lines)))
        worse = len(level_runs("error", lines, 0, len(lines))) if bad else 0
        for severity, number in enumerate((lines.count(b"\n") - bad, bad - worse, worse)):
            counts[second, severity] += number
    return counts


def shorten(text: bytes) -> bytes:
    """Return what pages show of a line, or record: its first 16 KiB, and how many follow."""
    more = len(text) - _LONGEST
    return text[:_LONGEST] + f" … and {more:,} bytes more".encode() if more > 0 else text


def make_line(found: FoundLines, stream: str) -> Line:
    """Return a line, or record, of a stream that is named with its creation."""
    text = found.lines.removesuffix(b"\n")
    return Line(
        time=found.stored_at,
        host=found.host,
        file=found.file,
        stream=stream,
        sequence=found.sequence,
        pos=found.number,
        line=shorten(text),
        level=find_level(text),
        is_piece=found.goes_on,
    )
