"""Searches the streams, from where the table or the received files end."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nats_logship.app.timestamps import to_datetime
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message, resolve_moment
from nats_logship.client.line_search import LineFilter, search_newest
from nats_logship.client.lines_around import LineId, find_around, find_in_other
from nats_logship.client.merged_search import search_all
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_state import StreamState, require_stream
from nats_logship.wire.subjects import partition_filter
from receiver.consume.judging import read_expected_sequence
from receiver.search.found import Found, SearchStatus

logger = logging.getLogger(__name__)


class StreamPart(NamedTuple):
    """The sequences `[first, until)` of a stream; of some partitions from other `firsts` on.

    Received files have the messages of such a partition before, even if `first` is behind it.
    """

    first: int
    until: int
    firsts: Mapping[int, int] = {}


ChoosePart = Callable[[StreamState], StreamPart]
"""Returns which part of a stream is to be searched."""


@dataclass(slots=True)
class Newer:
    """The streams from some sequences on, up to their ends at the time of `open`.

    Methods raise `OperatorError` and its kinds, `ConnectionLost`, `Rejected`.
    """

    connection: Connection
    wanted: LineFilter
    status: SearchStatus
    has_lost: bool = False
    """Whether a stream has removed messages before they were in received files."""
    _left: dict[str, SequenceRange] = field(default_factory=dict)  # by stream and creation
    _whole: dict[str, SequenceRange] = field(default_factory=dict)  # the same, of all times
    _firsts: dict[str, Mapping[int, int]] = field(default_factory=dict)

    async def open(
        self, choose: ChoosePart, since: int | None, until: int | None, *, is_seam: bool = False
    ) -> None:
        """Find what to search: what `choose` returns of each stream, between two times of storage.

        At a seam, messages that are removed before they are read are an error.
        """
        self._left.clear()
        for name in (await require_layout(self.connection)).names:
            state = await require_stream(self.connection, name)
            first, end, firsts = await asyncio.to_thread(choose, state)
            if firsts:
                firsts = await self._find_unreceived(firsts, state)
                first = min(firsts.values())
            whole = SequenceRange(">", first, end, name, is_seam)
            if since is not None:
                first = max(first, await self._resolve(since, state))
            if until is not None:
                end = min(end, await self._resolve(until, state))
            key = state.key
            self._firsts[key] = firsts
            self._whole[key] = replace(whole, fail_on_data_loss=False)
            self._left[key] = replace(whole, first=first, until=end)
            share = max(0, end - first) / max(1, state.until - state.first)
            self.status.size += int(share * state.size)

    async def _find_unreceived(
        self, firsts: Mapping[int, int], state: StreamState
    ) -> dict[int, int]:
        """Return where the stream goes on behind the files, by partition; log what neither has.

        Messages that were removed may all be of other partitions. They are missing if all
        partitions end before them, or if a message names one of them as its predecessor.
        """
        asked = [{"seq": one, "next_by_subj": partition_filter(n)} for n, one in firsts.items()]
        get = [find_message(self.connection, state.name, one) for one in asked]
        unreceived, missing = dict[int, int](), [max(firsts.values())]
        for partition, message in zip(firsts, await asyncio.gather(*get), strict=True):
            before = read_expected_sequence(message.headers) if message else None
            if before is not None and before >= firsts[partition]:
                missing.append(firsts[partition])
            unreceived[partition] = min(message.sequence, state.until) if message else state.until
        if min(missing) < state.first:
            self.has_lost = True
            logger.warning(
                "lines are missing: sequences %d to %d of stream %s were removed before they were "
                "in the received files",
                *(min(missing), state.first - 1, state.name),
            )
        return unreceived

    async def _resolve(self, time: int, state: StreamState) -> int:
        return await resolve_moment(self.connection, to_datetime(time), state)

    def allow_loss(self) -> None:
        """From now on pass over messages that are removed before they are read."""
        for key, item in self._left.items():
            self._left[key] = replace(item, fail_on_data_loss=False)

    def reached(self) -> tuple[tuple[str, int], ...]:
        """Return the first sequence of each stream that `find` has not searched."""
        return tuple((key, item.first) for key, item in self._left.items())

    async def begin(self) -> int:
        """Return when the first message was stored that is to be searched; 0 without one."""
        times = list[int]()
        for item in self._left.values():
            if item.first < item.until and (
                found := await find_message(self.connection, item.stream, item.first_message)
            ):
                times.append(found.stored_at)
        return min(times, default=0)

    async def find(self) -> AsyncGenerator[list[Found], None]:
        """Yield what is found, in the order of storage; see `Finder`.

        Raises `LostSequences`; then `reached` says from where on.
        """
        keys = list(self._left)
        parts = [(self._left[key], replace(self.wanted, firsts=self._firsts[key])) for key in keys]
        async with aclosing(search_all(self.connection, parts)) as runs:
            async for run in runs:
                self.status.show(self.status.read + run.size, run.stored_at)
                yield [Found.from_stream(one, keys[number]) for number, one in run.found]
                for key, following in zip(keys, run.following, strict=True):
                    self._left[key] = replace(self._left[key], first=following)

    async def find_last(self, most: int) -> list[Found]:
        """Return the last lines, in the order of storage; raises `LostSequences`."""
        found: list[Found] = []
        for key, item in self._left.items():
            wanted = replace(self.wanted, firsts=self._firsts[key])
            lines, _ = await search_newest(self.connection, item, wanted, most)
            found += (Found.from_stream(one, key) for one in lines)
        return sorted(found, key=lambda one: one.time or 0)[-most:]

    async def find_around(self, one: Found, most: int) -> tuple[list[Found], list[Found]]:
        """Return the lines before and after a line in its host and file, which may be older."""
        before, after = list[Found](), list[Found]()
        for key, item in self._whole.items():
            line = LineId(one.host, one.file, one.sequence, one.pos)
            if key != one.stream:
                line = await find_in_other(self.connection, item, line, one.time or 0)
            found = await find_around(self.connection, item, line, most)
            firsts = self._firsts[key]
            before += (
                Found.from_stream(other, key)
                for other in found.before
                if other.sequence >= firsts.get(other.partition, 0)
            )
            after += (Found.from_stream(other, key) for other in found.after)
        before.sort(key=lambda other: other.time or 0)
        after.sort(key=lambda other: other.time or 0)
        return before[-most:], after[:most]
