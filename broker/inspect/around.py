"""The lines before and after a line of a stream, in its host and file."""

import asyncio
import glob
import sys
from contextlib import aclosing, suppress

from broker.inspect.ranges import StreamRange, name_stream
from broker.inspect.reader import get_message
from broker.inspect.windows import search_streams, summarize_messages
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.client.connection import Connection
from nats_logship.client.line_search import LineFilter
from nats_logship.client.stream_state import StreamState
from nats_logship.history import Line, Order

_PATIENCE = 15.0  # seconds for those before it, and for those after it


async def find_around(
    connection: Connection, state: StreamState, sequence: int, pos: int, most: int
) -> tuple[list[Line], Line, list[Line]]:
    """Return at most `most` lines before a line, or more of its message; the line; those after it.

    There are fewer if they are not found in time. Raises `OperatorError` if the message, or the
    line in it, does not exist; `ConnectionLost`, `Rejected`.
    """
    message = await get_message(connection, state.name, sequence)
    what = ([message], name_stream(state), LineFilter(), sys.maxsize)
    of_message = (await asyncio.to_thread(summarize_messages, *what)).lines
    at = max((number for number, one in enumerate(of_message) if one.pos <= pos), default=None)
    if at is None:
        raise OperatorError("this message holds no such line")
    line = of_message[at]
    before = [one for one in of_message[:at] if one.file == line.file]
    after = [one for one in of_message[at + 1 :] if one.file == line.file]
    earlier, later = (state.first, sequence), (sequence + 1, state.until)
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
    wanted = LineFilter(LineSelection((like.host,), files))
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            async with aclosing(search_streams(connection, [part], wanted, order, most)) as windows:
                async for window in windows:
                    found += (one for one in window.lines if one.file == like.file)
                    if len(found) >= most:
                        break
    return sorted(found, key=lambda one: one.order)
