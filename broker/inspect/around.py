"""The lines before and after a line of a stream, in its host and file."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from broker.inspect.old_lines import ask, join_records, leave_to_table
from broker.inspect.ranges import StreamRange, read_states
from broker.inspect.reader import get_message
from broker.inspect.windows import make_line, shorten
from nats_logship.app.exits import OperatorError
from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import FoundLines
from nats_logship.client.line_search import LineFilter, select
from nats_logship.client.lines_around import LineId, find_in_other
from nats_logship.client.lines_around import find_around as find_lines_around
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_state import StreamState
from nats_logship.history import History, Line
from nats_logship.wire.stream_message import StreamMessage

_DIGITS = 19  # of a number in a key
_COMPARED = 1024  # bytes of a line
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

    They are from the table, if there is one, and from all streams: a host may move to another one.
    Lines of a stream are fewer if they are not found in time. Raises `OperatorError` if the line is
    nowhere; `ConnectionLost`, `Rejected`.
    """
    states = await read_states(connection)
    ranges = [StreamRange(one, one.first, one.until) for one in states]
    line = await ask(history.get, *key) if history else None
    line = line and line._replace(line=shorten(line.line))
    line = line or await _get_line(connection, states, key)
    lines = list[Line]()
    if history:
        ranges += await ask(leave_to_table, history, ranges)
        lines += join_records(await ask(history.around, line, most, most))
    found = (_find_in_range(connection, one, line, most) for one in ranges if one.first < one.until)
    lines += (one for some in await asyncio.gather(*found) for one in some)
    lines.sort(key=lambda one: one.order)
    at = sum(one.order <= line.order for one in lines) - 1
    if at < 0 or line.line[:_COMPARED] not in lines[at].line:  # it is not found in time
        at += 1
        lines.insert(at, line)
    return lines[max(0, at - most) : at], lines[at], lines[at + 1 : at + 1 + most]


async def _get_line(connection: Connection, states: Sequence[StreamState], key: LineKey) -> Line:
    """Return a line, or a record that it belongs to, from its message."""
    for state in states:
        if state.key == key.stream and state.first <= key.sequence < state.until:
            message = await get_message(connection, state.name, key.sequence)
            if found := await asyncio.to_thread(_find_line, message, key.pos):
                return make_line(found, state.key)
            raise OperatorError("this message holds no such line")
    raise OperatorError("this line is no longer in the stream, nor in a table")


async def _find_in_range(
    connection: Connection, part: StreamRange, line: Line, most: int
) -> list[Line]:
    """Return the lines around a line that a part of a stream has, and the line."""
    item = SequenceRange(">", part.first, part.until, part.state.name)
    wanted = LineId(line.host, line.file, line.sequence, line.pos)
    if part.state.key != line.stream:
        wanted = await find_in_other(connection, item, wanted, line.time)
    found = await find_lines_around(connection, item, wanted, max(1, most), _PATIENCE)
    lines = [*found.before, *filter(None, [found.at]), *found.after]
    return [make_line(one, part.state.key) for one in lines]


def _find_line(message: StreamMessage, number: int) -> FoundLines | None:
    """Return the record or line of a message that has a line, by its number."""
    for found in select(message, LineFilter()):
        _, rest = found.divide(number)
        if rest.lines and found.number <= number:
            return next(rest.first(1))
    return None
