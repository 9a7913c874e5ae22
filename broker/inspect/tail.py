"""`logbroker tail`: the last lines of hosts, or those since a moment, and then new ones."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from broker.inspect.reader import MessageReader, find_sequence_at, follow
from broker.inspect.streams import read_known_layout, require_partitions
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import Moment
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.found_lines import FoundLines, OpenRecords
from nats_logship.client.line_search import LineFilter, search_newest, select
from nats_logship.client.merged_search import search_all
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_reader import at_sequence

_MOST_SEARCHED = 1_000_000  # messages, unless the broker selects those of one host


class Searched(NamedTuple):
    """Only so many of the last messages were searched; earlier ones may hold more such lines."""

    messages: int


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Which lines to show.

    Lines of the hosts and files of `selection`, in `partitions` (none: all), that match the
    expression `match` and were stored at `since` or later; the last `lines` of them, None meaning
    all. With `follow` also new lines. Records of several lines are shown and counted whole. Raises
    ValueError for a bad expression.
    """

    selection: LineSelection = field(default_factory=LineSelection)
    partitions: tuple[int, ...] = ()
    since: Moment | None = None
    lines: int | None = 10
    follow: bool = True
    match: str = ""
    wanted: LineFilter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the expression."""
        object.__setattr__(self, "wanted", LineFilter(self.selection, self.partitions, self.match))


async def tail(
    connection: Connection, wanted: TailOptions
) -> AsyncGenerator[list[FoundLines] | Searched, None]:
    """Yield the lines to show, many at a time.

    Before them comes a `Searched` if not all messages were searched.

    Lines are in the order of their storage. After a lost connection no line is yielded twice or
    left out. Raises `OperatorError`, `ConnectionLost`, `Rejected`.
    """
    layout = await retry_until_answered(connection, read_known_layout, ELECTION)
    infos = [await _ask_info(connection, name) for name in layout.names]
    require_partitions(wanted.partitions, layout, (one["config"] for one in infos))
    ends = [await _find_ends(connection, one, wanted.since) for one in infos]
    if wanted.lines is None:
        parts = [(one, wanted.wanted) for one in ends]
        async with aclosing(search_all(connection, parts)) as runs:
            async for run in runs:
                yield [found for _, found in run.found]
    elif wanted.lines:
        async for newest in _read_newest(connection, ends, wanted):
            yield newest
    if wanted.follow:
        async for found in _follow(connection, ends, wanted.wanted):
            yield found


async def _follow(
    connection: Connection, ends: Sequence[SequenceRange], wanted: LineFilter
) -> AsyncGenerator[list[FoundLines], None]:
    """Yield new lines, those behind the ends."""
    async with AsyncExitStack() as stack:
        readers: list[MessageReader] = []
        for one in ends:
            reader = MessageReader(connection, one.stream, at_sequence(one.until), wanted.subjects)
            stack.push_async_callback(reader.close)
            readers.append(reader)
        # without an expression unfinished lines and records are shown as they come
        opened = OpenRecords() if wanted.match else None
        async for some in follow(readers):
            yield [found for one in some for found in select(one, wanted, opened)]


async def _read_newest(
    connection: Connection, ends: Sequence[SequenceRange], wanted: TailOptions
) -> AsyncGenerator[list[FoundLines] | Searched, None]:
    """Yield the last lines of all streams in the order of their storage."""
    newest: list[FoundLines] = []
    for one in ends:
        most = None if wanted.wanted.only_host else _MOST_SEARCHED
        lines, searched = await search_newest(
            connection, one, wanted.wanted, wanted.lines or 1, most
        )
        newest += lines
        if searched:
            yield Searched(searched)
    newest.sort(key=lambda found: found.stored_at)
    yield newest[-(wanted.lines or 1) :]


async def _ask_info(connection: Connection, stream: str) -> dict[str, Any]:
    ask = partial(Connection.api, name=f"STREAM.INFO.{stream}")
    return await retry_until_answered(connection, ask, ELECTION)


async def _find_ends(
    connection: Connection, info: Mapping[str, Any], since: Moment | None
) -> SequenceRange:
    """Return where to read a stream from a moment on, by default from its beginning."""
    stream, state = info["config"]["name"], info["state"]
    until = state["last_seq"] + 1
    ask = partial(find_sequence_at, stream=stream, moment=since or 0, end=until)
    first = max(state["first_seq"], await retry_until_answered(connection, ask, ELECTION))
    return SequenceRange(">", first, until, stream)
