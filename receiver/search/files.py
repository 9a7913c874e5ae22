"""Searches received files, some at a time in threads, and the streams for what is not in them yet.

zstd and RE2 work on whole blocks and leave the interpreter to other threads meanwhile.
"""

import asyncio
import logging
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from queue import Full, Queue
from sys import maxsize
from threading import Event

import zstandard

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import count_lines
from nats_logship.client.line_search import LineFilter
from nats_logship.client.ranges import LostSequences
from nats_logship.client.stream_state import StreamState
from nats_logship.history import Query
from nats_logship.wire.streams import StreamLayout
from receiver.driver.partitions import request_partition_count
from receiver.search.ends import (
    StoredLines,
    cut_to_first,
    cut_to_last,
    keep_first,
    keep_last,
)
from receiver.search.find import StreamFinder, make_filter
from receiver.search.found import Found, SearchStatus
from receiver.search.merge import Groups
from receiver.search.newer import Newer, StreamPart
from receiver.search.received import ReceivedFiles, ReceivedPart
from receiver.search.scan import Range, ScannedRun, Search, scan

_BLOCKS = 16  # of a file that wait until those of the files before are shown
_SOON = 0.1  # seconds
_AT_ONCE = os.cpu_count() or 1  # files
_BEGUN = 2 * _AT_ONCE  # files, with those that wait until the files before are shown

logger = logging.getLogger(__name__)
_Blocks = Queue[list[Found] | None]


@dataclass(slots=True)
class FilesFinder:
    """Finds lines in received files, and in the streams those that are not in the files."""

    received: ReceivedFiles
    query: Query
    wanted: LineFilter
    context: int
    status: SearchStatus
    newer: StreamFinder | None = None
    is_incomplete: bool = False
    """Whether lines are missing, as the log says."""

    @classmethod
    async def open(
        cls,
        received: ReceivedFiles,
        query: Query,
        context: int,
        connection: Connection | None,
        status: SearchStatus,
    ) -> "FilesFinder":
        """Ask the streams what they hold, after the stores of the files were read."""
        if query.selection.files and not received.has_sources:
            raise ConfigurationError(
                f"--file: the files in {received.output} do not say from which source file a line "
                "is; search a table, or the stream alone"
            )
        found = cls(received, query, make_filter(query), context, status)
        if connection is not None:
            streams = Newer(connection, found.wanted, status)
            layout = await require_layout(connection)
            count = await request_partition_count(connection, layout)
            choose = partial(found._behind, layout=layout, count=count)
            await streams.open(choose, query.since, query.until, is_seam=True)
            found.is_incomplete = streams.has_lost
            found.newer = StreamFinder(streams)
        status.size += sum(part.size for part in found._parts)
        return found

    async def find(self, most: int | None) -> Groups:
        """Yield the lines of files, by host and file in their order; then those of the streams.

        If not all are needed, yield them with their context, about in the order of storage.
        """
        if most is not None:
            yield await self._find_oldest(most)
            return
        async with aclosing(self._search(self._parts)) as groups:
            async for found in groups:
                yield found
        if self.newer:
            groups = self._find_newer(self.newer, None)
            groups = self.newer.add_context(groups, self.context) if self.context else groups
            async with aclosing(groups):
                async for found in groups:
                    yield found

    def add_context(self, groups: Groups, most: int) -> Groups:
        """Return the groups: what is found in files has its context."""
        return groups

    async def find_last(self, most: int) -> list[Found]:
        """Return the last lines of all files and of the streams, about in the order of storage."""
        newest = await self._find_last_newer(self.newer, most) if self.newer else []
        found = [StoredLines(newest, [one.time or 0 for one in newest])]
        parts = sorted(self._parts, key=lambda one: one.ends, reverse=True)
        is_timed = not self._is_one_file
        while parts:
            times = sorted(time for one in found for time in one.times)
            if len(times) >= most and times[-most] >= parts[0].ends:
                break
            some, parts = parts[:_AT_ONCE], parts[_AT_ONCE:]
            read = [asyncio.to_thread(self._read_last, one, most, is_timed) for one in some]
            found = [*reversed(await asyncio.gather(*read)), *found]
            self.status.show(self.status.read + sum(one.size for one in some), some[-1].ends)
        return await self._join(cut_to_last(found, most, self.context))

    async def _find_oldest(self, most: int) -> list[Found]:
        """Return the first lines of all files and of the streams, about in the order of storage."""
        parts, found = sorted(self._parts, key=lambda one: one.begins), list[StoredLines]()
        while parts:
            if self._last_time(found, most) <= parts[0].begins:
                break
            some, parts = parts[:_AT_ONCE], parts[_AT_ONCE:]
            read = [asyncio.to_thread(self._read_first, one, most) for one in some]
            found = cut_to_first([*found, *await asyncio.gather(*read)], most, self.context)
            self.status.show(self.status.read + sum(one.size for one in some), some[-1].begins)
        found.append(await self._find_oldest_newer(most, self._last_time(found, most)))
        return await self._join(cut_to_first(found, most, self.context))

    @staticmethod
    def _last_time(found: Sequence[StoredLines], most: int) -> int:
        """Return when the last one of so many lines was stored; `maxsize` if there are less."""
        times = sorted(time for one in found for time in one.times)
        return times[most - 1] if len(times) >= most else maxsize

    async def _find_oldest_newer(self, most: int, until: int) -> StoredLines:
        """Return the first lines of the streams that were stored up to a time."""
        found = list[Found]()
        if self.newer and await self.newer.streams.begin() <= until:
            async with aclosing(self._find_newer(self.newer, most)) as groups:
                async for group in groups:
                    for one in group:
                        found += islice(one.split_up(), most - len(found))
                    if len(found) == most or (found and (found[-1].time or 0) > until):
                        break
        return StoredLines(found, [one.time or 0 for one in found])

    async def _find_newer(self, newer: StreamFinder, most: int | None) -> Groups:
        """Yield the lines of the streams, also if some are removed before they are read."""
        while True:
            with suppress(LostSequences):
                async with aclosing(newer.find(most)) as groups:
                    async for found in groups:
                        yield found
                return
            self._note_lost(newer)

    async def _find_last_newer(self, newer: StreamFinder, most: int) -> list[Found]:
        """Return the last lines of the streams, also if some are removed before they are read."""
        with suppress(LostSequences):
            return await newer.find_last(most)
        self._note_lost(newer)
        return await newer.find_last(most)

    def _note_lost(self, newer: StreamFinder) -> None:
        """Log that lines are missing, and have the streams searched behind them."""
        newer.streams.allow_loss()
        self.is_incomplete = True
        logger.warning(
            "lines are missing: a stream removed messages before they were read; search again"
        )

    async def _join(self, found: Sequence[StoredLines]) -> list[Found]:
        """Return lines in the order of storage: of files, and the last ones are of the streams."""
        *files, streams = found
        groups = [group for one in files for group in one.split_up(self.context)]
        if self.newer and self.context and streams.lines:
            around = self.newer.add_context(_yield_once(streams.lines), self.context)
            groups += [(some[0].time or 0, some) async for some in around]
        else:
            groups += streams.split_up(0)
        groups.sort(key=lambda one: one[0])
        return [line for _, group in groups for line in group]

    @property
    def _is_one_file(self) -> bool:
        """Whether all lines are in order: those of one host, in one file and its closed ones."""
        return self.wanted.only_host is not None and len({one.source for one in self._parts}) <= 1

    @property
    def _parts(self) -> list[ReceivedPart]:
        query = self.query
        return self.received.choose(query.selection, query.since, query.until)

    def _behind(self, state: StreamState, layout: StreamLayout, count: int) -> StreamPart:
        """Return which sequences of a stream the files may not have, by partition."""
        firsts = {
            number: self._find_first(number, state)
            for number in range(count)
            if layout.stream_of(number) == state.name
        }
        return StreamPart(state.first, state.until, firsts)

    def _find_first(self, partition: int, state: StreamState) -> int:
        """Return the first sequence of a stream that is behind the files of a partition.

        It is the stream's first if the files have nothing of the stream.
        """
        batch = self.received.batches.get(partition)
        if batch is None or batch.stream != state.name:
            return state.first
        until = batch.until
        if batch.created not in {state.created, ""}:
            until = min(until, state.in_common_with(batch.created) or state.first)
        return max(1, min(until, state.until))

    async def _search(self, parts: Sequence[ReceivedPart]) -> Groups:
        """Yield the lines of some files in order; the next ones are searched meanwhile."""
        stopped, workers, left = Event(), ThreadPoolExecutor(_AT_ONCE), iter(parts)
        begun = deque[tuple[ReceivedPart, _Blocks, Future[None]]]()
        try:
            while True:
                for part in islice(left, _BEGUN - len(begun)):
                    queue = _Blocks(_BLOCKS)
                    begun.append((part, queue, workers.submit(self._scan, part, queue, stopped)))
                if not begun:
                    return
                part, queue, scanned = begun.popleft()
                while (found := await asyncio.to_thread(queue.get)) is not None:
                    yield found
                await asyncio.wrap_future(scanned)  # raises what has ended it
                self.status.show(self.status.read + part.size, part.ends)
        finally:
            stopped.set()
            workers.shutdown(wait=False, cancel_futures=True)

    def _scan(self, part: ReceivedPart, queue: _Blocks, stopped: Event) -> None:
        """Put what is found in a part into a queue, and None at its end or behind an error."""
        try:
            for found in self._read(part, self._make_search(part)):
                if stopped.is_set() or (found and not _put(queue, found, stopped)):
                    return
        finally:
            _put(queue, None, stopped)

    def _read_first(self, part: ReceivedPart, most: int) -> StoredLines:
        """Return the first lines of a part; the rest of it is not read."""
        from receiver.search.times import LineTimes, StorageTimes  # they load pyarrow

        search, times = self._make_search(part), list[int | None]()
        clock = StorageTimes(LineTimes(part.ends, self.received.zone))

        def find(block: bytearray, start: int, end: int) -> list[Range]:
            if len(times) == most:
                return []  # the rest is context
            ranges = keep_first(block, search(block, start, end), most - len(times))
            times.extend(clock.read_some(block, start, end, ranges))
            return ranges

        lines = list[Found]()
        for some in self._read(part, find):
            lines += [line for one in some for line in one.split_up()]
            if len(times) == most and not (some and self.context):
                break
        is_whole = len(times) < most
        # lines before the first time were stored before; nothing is known without any
        first = next((one for one in times if one is not None), part.ends // 1000)
        times = [first if one is None else one for one in times]
        stored = clock.estimate(times, part.begins) if is_whole else clock.bound(times, part.begins)
        return StoredLines(lines, stored)

    def _read_last(self, part: ReceivedPart, most: int, is_timed: bool) -> StoredLines:
        """Return the last lines of a part; unless they are timed, all were stored at its end."""
        search, times, clock = self._make_search(part), deque[int | None](maxlen=most), None
        if is_timed:
            from receiver.search.times import LineTimes, StorageTimes  # they load pyarrow

            clock = StorageTimes(LineTimes(part.ends, self.received.zone))

        def find(block: bytearray, start: int, end: int) -> list[Range]:
            ranges = keep_last(block, search(block, start, end), most)
            if clock:
                times.extend(clock.read_some(block, start, end, ranges))
            else:
                times.extend(
                    None for one in ranges for _ in range(count_lines(bytes(block[slice(*one)])))
                )
            return ranges

        found = StoredLines([], [])
        for some in self._read(part, find):
            lines = [line for one in some for line in one.split_up()]
            found = StoredLines([*found.lines, *lines], []).keep_last(most, self.context)
        stored = clock.estimate(times, part.begins) if clock else [part.ends] * len(times)
        return StoredLines(found.lines, stored)

    def _read(self, part: ReceivedPart, search: Search) -> Iterator[list[Found]]:
        """Yield what is found in each block of a part."""
        try:
            with self.received.open(part) as file:
                for runs in scan(file, search, self.context, part.length):
                    yield [_make_found(part, one) for one in runs]
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            self.is_incomplete = True
            logger.warning("lines are missing: %s cannot be read: %s", part.path, error)

    def _make_search(self, part: ReceivedPart) -> Search:
        """Return a function that finds the wanted lines of a part, by their times at its ends."""
        query, wanted = self.query, replace(self.wanted, level="")
        since = query.since if query.since is not None and part.begins < query.since else None
        until = query.until if query.until is not None and part.ends >= query.until else None
        if not query.level and since is None and until is None:
            return wanted.find
        # these load pyarrow
        from receiver.search.choose import choose
        from receiver.search.times import LineTimes
        from receiver.table.level import have_level

        times = LineTimes(part.ends, self.received.zone).is_between(since, until)
        is_cut = since is not None or until is not None
        levels = partial(have_level, least=query.level)

        def find(block: bytearray, start: int, end: int) -> list[Range]:
            runs = choose(block, [(start, end)], times) if is_cut else [(start, end)]
            runs = [one for run in runs for one in wanted.find(block, *run)]
            return choose(block, runs, levels) if query.level else runs

        return find


async def _yield_once(found: list[Found]) -> Groups:
    yield found


def _make_found(part: ReceivedPart, run: ScannedRun) -> Found:
    return Found(part.host, part.source, run.lines, is_context=run.is_context, begins=run.begins)


def _put(queue: _Blocks, found: list[Found] | None, stopped: Event) -> bool:
    """Put something into a queue as soon as there is space; return False if the search ended."""
    while not stopped.is_set():
        with suppress(Full):
            queue.put(found, timeout=_SOON)
            return True
    return False
