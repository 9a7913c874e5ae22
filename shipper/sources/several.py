"""Several sources of one host, which behave as one.

A loud source does not keep the lines of a quiet one waiting, and no other line of the host comes
between the pieces of an over-long one, unless a source gives up its end (`is_inside_line`).
"""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.notices import Notice
from shipper.sources.source import Source, SourceState

_LEAST_SHARE = 16 * 1024  # bytes


def _make_of_each(name: str, combine: Callable[[Iterator[Any]], Any]) -> Any:
    """Return a property: what `combine` makes of that of each source."""
    return property(lambda self: combine(getattr(one, name) for one in self._sources))


class Sources(Source):
    """Sources that share `wake`; a position is given to the first one that owns it."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.stored: Callable[[str], int] = lambda _: 0
        self._sources: list[Source] = []
        self._last_sizes: dict[int, int] = {}  # bytes of the last gathering, by number

    def add(self, source: Source) -> None:
        """Read another source, too, with the same `wake`."""
        source.stored = lambda file: self.stored(file)  # as it is then
        self._sources.append(source)

    # what the loop asks for

    async def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Give each source its own cursors; those of no source are left alone."""
        left = dict(cursors)
        for source in self._sources:
            own = {file: cursor for file, cursor in left.items() if source.owns(cursor)}
            await source.rewind(own)
            left = {file: cursor for file, cursor in left.items() if file not in own}

    async def scan(self) -> list[Notice]:
        """Scan each source."""
        return [notice for source in self._sources for notice in await source.scan()]

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines, an equal share of each source that has so many.

        The source that gave least the last time comes first, and leaves the rest of its share to
        those behind it.
        """
        blocks: list[Block] = []
        order = self._order()
        for count, number in enumerate(order):
            share = max(_LEAST_SHARE, budget // (len(order) - count))
            source = self._sources[number]
            found = await source.gather(share)
            self._last_sizes[number] = size = sum(len(block.lines) for block in found)
            budget -= size
            blocks += found
            if source.is_inside_line:
                break
        return blocks

    def _order(self) -> list[int]:
        def precede(number: int) -> tuple[bool, int]:
            is_inside = self._sources[number].is_inside_line
            return not is_inside, self._last_sizes.get(number, 0)

        return sorted(range(len(self._sources)), key=precede)

    def await_change(self) -> None:
        """Have `wake` set at a change of any source."""
        for source in self._sources:
            source.await_change()

    def resize(self, block_size: int, max_line: int, max_entry: int) -> None:
        """Resize each source."""
        for source in self._sources:
            source.resize(block_size, max_line, max_entry)

    async def close(self) -> list[str]:
        """Close all sources at the same time."""
        return list(chain(*await asyncio.gather(*(one.close() for one in self._sources))))

    def owns(self, cursor: Cursor) -> bool:
        """Whether a source owns it."""
        return any(source.owns(cursor) for source in self._sources)

    # what they know

    def files(self) -> list[SourceState]:
        """Return the states of all."""
        return [state for source in self._sources for state in source.files()]

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return those of all."""
        return [cursor for source in self._sources for cursor in source.start_cursors(but)]

    def may_find(self, cursor: Cursor) -> bool:
        """Whether the first source that owns it may: a journal's trouble is no file's."""
        return next((one.may_find(cursor) for one in self._sources if one.owns(cursor)), False)

    ended_files = _make_of_each("ended_files", lambda found: set(chain(*found)))
    deleted_files = _make_of_each("deleted_files", lambda found: list(chain(*found)))
    troubles = _make_of_each("troubles", lambda found: list(chain(*found)))
    has_decided = _make_of_each("has_decided", all)
    has_ended = _make_of_each("has_ended", all)
    is_scan_due = _make_of_each("is_scan_due", any)
    is_inside_line = _make_of_each("is_inside_line", any)
    poll_in = _make_of_each("poll_in", partial(min, default=0.0))
    open_files = _make_of_each("open_files", sum)
    obstacle = _make_of_each("obstacle", lambda found: "; ".join(filter(None, found)))
    busy_since = _make_of_each(
        "busy_since", lambda found: min((one for one in found if one is not None), default=None)
    )
