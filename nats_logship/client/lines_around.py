"""The lines of a stream before and after a line, in its host and file; records are whole."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from glob import escape
from typing import NamedTuple

from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import to_datetime
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_sequence
from nats_logship.client.found_lines import FoundLines
from nats_logship.client.line_search import FIRST_WINDOW, WIDER, LineFilter, search
from nats_logship.client.ranges import SequenceRange


class LineId(NamedTuple):
    """A line of a host and file: its message, and its number in that, from 0.

    There may be no such line: then the lines before and after it are found.
    """

    host: str
    file: str
    sequence: int
    number: int


@dataclass(slots=True)
class LinesAround:
    """The last `most` lines before a line, the line, and those after it; a record counts as one.

    After it are at least `enough`, if there are so many, and at most `most`.
    """

    line: LineId
    most: int
    enough: int
    before: deque[FoundLines] = field(init=False)
    at: FoundLines | None = None
    after: list[FoundLines] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Keep the last ones before it."""
        self.before = deque(maxlen=self.most)

    def add(self, runs: Iterable[FoundLines]) -> bool:
        """Add lines in their order; return whether there are enough."""
        for one in runs:
            if one.file == self.line.file and len(self.after) < self.enough:
                self._add(one)
        return len(self.after) >= self.enough

    def _add(self, found: FoundLines) -> None:
        left = self.most - len(self.after)
        if (found.sequence, found.number) > self.line[2:]:
            self.after += found.first(left)
            return
        if found.sequence == self.line.sequence:
            found, rest = found.divide(self.line.number)
            for self.at in rest.first(1):
                self.after += [*rest.first(left + 1)][1:]
        self.before.extend(found.last(self.most))


async def find_around(
    connection: Connection,
    item: SequenceRange,
    line: LineId,
    most: int,
    patience: float | None = None,
) -> LinesAround:
    """Return the lines around a line in a range of a stream, at most `most`, which is above 0.

    These are fewer if the search for either side takes over `patience` seconds. Raises as `search`.
    """
    files = (escape(line.file),) if line.file else ()
    wanted = LineFilter(LineSelection((escape(line.host),), files))
    window, end = FIRST_WINDOW, min(line.sequence + 1, item.until)
    found = LinesAround(line, most, most)
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await _read(
                connection, replace(item, first=max(item.first, end - window)), wanted, found
            )
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while len(found.before) < most and end - window > item.first:
                window *= WIDER
                wider, part = LinesAround(line, most, 1), max(item.first, end - window)
                await _read(connection, replace(item, first=part), wanted, wider)
                found.before, found.at = wider.before, wider.at or found.at
    return found


async def find_in_other(
    connection: Connection, item: SequenceRange, line: LineId, stored_at: int
) -> LineId:
    """Return where a line of another stream would be in a range: a host may move between them.

    `stored_at` is in nanoseconds since the epoch. Raises as `find_sequence`.
    """
    time = to_datetime(stored_at) + timedelta.resolution
    following = await find_sequence(connection, item.stream, time)
    return line._replace(sequence=following or item.until, number=-1)


async def _read(
    connection: Connection, item: SequenceRange, wanted: LineFilter, found: LinesAround
) -> None:
    async with aclosing(search(connection, item, wanted)) as runs:
        async for run in runs:
            if await asyncio.to_thread(found.add, run.found):
                return
