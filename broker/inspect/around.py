"""The lines before and after a line of a stream, in its host and file."""

import asyncio
import glob
import sys
from contextlib import aclosing, suppress
from typing import NamedTuple

from broker.inspect.old_lines import join_records
from broker.inspect.ranges import StreamRange, read_states
from broker.inspect.reader import get_message
from broker.inspect.windows import search_streams, summarize_messages
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.client.connection import Connection
from nats_logship.client.line_search import LineFilter
from nats_logship.client.stream_state import StreamState
from nats_logship.history import History, Line, Order

_DIGITS = 19  # of a number in a key
_PATIENCE = 15.0  # seconds for those before it, and for those after it


class LineKey(NamedTuple):
    """Names a line: its stream with its creation, its message, and the line in that."""

    stream: str
    sequence: int
    pos: int

    @classmethod
    def of(cls, line: Line) -> "LineKey":
        """Return the key of a line."""
        return cls(line.stream, line.sequence, line.pos)

    @classmethod
    def parse(cls, text: str) -> "LineKey":
        """Read what `str` writes; raises ValueError."""
        stream, *numbers = text.rsplit(":", 2)
        is_number = [one.isascii() and one.isdigit() and len(one) < _DIGITS for one in numbers]
        if is_number != [True, True]:
            raise ValueError(f"{text[:200]!r} is not the key of a line")
        return cls(stream, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.stream}:{self.sequence}:{self.pos}"


Around = tuple[list[Line], Line, list[Line]]
"""The lines before a line, the line, and those after it."""


async def find_around(
    connection: Connection, history: History | None, key: LineKey, most: int
) -> Around:
    """Return at most `most` lines before a line, or more of its message; the line; those after it.

    Lines that the stream has no more are from the table, if there is one. Raises `OperatorError` if
    neither has the line; `ConnectionLost`, `Rejected`.
    """
    states = {one.key: one for one in await read_states(connection)}
    state = states.get(key.stream)
    if state and state.first <= key.sequence < state.until:
        before, line, after = await _find_in_stream(connection, state, key, most)
        if history and len(before) < most:
            oldest = (before or [line])[0]
            some = await asyncio.to_thread(history.around, oldest, most - len(before), 0)
            before = [one for one in join_records(some) if one.order < oldest.order] + before
        return before, line, after
    if history and (found := await asyncio.to_thread(history.get, *key)):
        some = join_records(await asyncio.to_thread(history.around, found, most, most))
        at = max(number for number, one in enumerate(some) if one.order <= found.order)
        return some[:at], some[at], some[at + 1 :]
    raise OperatorError("this line is no longer in the stream, nor in a table")


async def _find_in_stream(
    connection: Connection, state: StreamState, key: LineKey, most: int
) -> Around:
    """Return the same from a stream; fewer lines if they are not found in time."""
    message = await get_message(connection, state.name, key.sequence)
    what = ([message], state.key, LineFilter(), sys.maxsize)
    of_message = (await asyncio.to_thread(summarize_messages, *what)).lines
    at = max((number for number, one in enumerate(of_message) if one.pos <= key.pos), default=None)
    if at is None:
        raise OperatorError("this message holds no such line")
    line = of_message[at]
    before = [one for one in of_message[:at] if one.file == line.file]
    after = [one for one in of_message[at + 1 :] if one.file == line.file]
    earlier, later = (state.first, key.sequence), (key.sequence + 1, state.until)
    before = [
        *await _search(
            connection, StreamRange(state, *earlier), line, Order.NEWEST, most - len(before)
        ),
        *before,
    ]
    after += await _search(
        connection, StreamRange(state, *later), line, Order.OLDEST, most - len(after)
    )
    return before, line, after


async def _search(
    connection: Connection, part: StreamRange, like: Line, order: Order, most: int
) -> list[Line]:
    """Return the first lines of the same host and file, in an order; sorted by time."""
    found: list[Line] = []
    files = (glob.escape(like.file),) if like.file else ()
    wanted = LineFilter(LineSelection((glob.escape(like.host),), files))
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            async with aclosing(search_streams(connection, [part], wanted, order, most)) as windows:
                async for window in windows:
                    found += (one for one in window.lines if one.file == like.file)
                    if len(found) >= most:
                        break
    return sorted(found, key=lambda one: one.order)
