"""The lines before and after a line of a stream, in its host and file."""

import asyncio
from typing import NamedTuple

from broker.inspect.old_lines import join_records
from broker.inspect.ranges import read_states
from broker.inspect.reader import get_message
from broker.inspect.windows import make_line
from nats_logship.app.exits import OperatorError
from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import FoundLines
from nats_logship.client.line_search import LineFilter, select
from nats_logship.client.lines_around import LineId
from nats_logship.client.lines_around import find_around as find_lines_around
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_state import StreamState
from nats_logship.history import History, Line
from nats_logship.wire.stream_message import StreamMessage

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
    """Return at most `most` lines before a line; the line; and so many after it.

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
        return some[max(0, at - most) : at], some[at], some[at + 1 : at + 1 + most]
    raise OperatorError("this line is no longer in the stream, nor in a table")


async def _find_in_stream(
    connection: Connection, state: StreamState, key: LineKey, most: int
) -> Around:
    """Return the same from a stream; fewer lines if they are not found in time."""
    message = await get_message(connection, state.name, key.sequence)
    if (own := await asyncio.to_thread(_find_line, message, key.pos)) is None:
        raise OperatorError("this message holds no such line")
    item = SequenceRange(">", state.first, state.until, state.name)
    line = LineId(own.host, own.file, key.sequence, own.number)
    found = await find_lines_around(connection, item, line, max(1, most), _PATIENCE)
    before, after = [*found.before], found.after[:most]
    if found.at is None and before and own.lines in before[-1].lines:
        own = before.pop()  # a record that began in an earlier message
    sides = [[make_line(one, state.key) for one in some] for some in (before, after)]
    return sides[0], make_line(found.at or own, state.key), sides[1]


def _find_line(message: StreamMessage, number: int) -> FoundLines | None:
    """Return the record or line of a message that has a line, by its number."""
    for found in select(message, LineFilter()):
        _, rest = found.divide(number)
        if rest.lines and found.number <= number:
            return next(rest.first(1))
    return None
