"""Searches received files, some at a time in threads, and the streams for what is not in them yet.

zstd and RE2 work on whole blocks and leave the interpreter to other threads meanwhile.
"""

import asyncio
import logging
import os
import zlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Full, Queue
from threading import Event

import zstandard

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.line_search import LineFilter
from nats_logship.client.stream_state import StreamState
from nats_logship.history import Query
from nats_logship.wire.streams import StreamLayout
from receiver.driver.partitions import request_partition_count
from receiver.search.find import Groups, StreamFinder, make_filter
from receiver.search.found import Found, SearchStatus
from receiver.search.newer import Newer, StreamPart
from receiver.search.received import ReceivedFiles, ReceivedPart
from receiver.search.scan import Range, ScannedRun, Search, scan

_BLOCKS = 16  # of a file that wait until those of the files before are shown
_SOON = 0.1  # seconds

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
            await streams.open(choose, query.since, query.until)
            found.newer = StreamFinder(streams)
        status.size += sum(part.size for part in found._parts)
        return found

    def find(self, most: int | None) -> Groups:
        """Yield the lines of files, by host and file in their order; then those of the streams."""
        return self._find()

    async def _find(self) -> Groups:
        async with aclosing(self._search(self._parts)) as groups:
            async for found in groups:
                yield found
        if self.newer:
            groups = self.newer.find(None)
            groups = self.newer.add_context(groups, self.context) if self.context else groups
            async with aclosing(groups):
                async for found in groups:
                    yield found

    def add_context(self, groups: Groups, most: int) -> Groups:
        """Return the groups: what is found in files has its context."""
        return groups

    async def find_last(self, most: int) -> list[Found]:
        """Return the last lines: those of the streams, before them those of the newest files."""
        newest = await self.newer.find_last(most) if self.newer else []
        left = most - len(newest)
        for part in sorted(self._parts, key=lambda one: one.ends, reverse=True):
            if left <= 0:
                break
            kept: deque[Found] = deque(maxlen=left)
            async with aclosing(self._search([part])) as groups:
                async for found in groups:
                    kept.extend(line for one in found for line in one.split_up())
            left -= sum(not one.is_context for one in kept)
            newest = [*kept, *newest]
        return newest

    @property
    def _parts(self) -> list[ReceivedPart]:
        query = self.query
        return self.received.choose(query.selection, query.since, query.until)

    def _behind(self, state: StreamState, layout: StreamLayout, count: int) -> StreamPart:
        """Return which sequences of a stream are behind the files, by partition."""
        firsts = {
            number: self._find_first(number, state)
            for number in range(count)
            if layout.stream_of(number) == state.name
        }
        return StreamPart(min(firsts.values(), default=state.first), state.until, firsts)

    def _find_first(self, partition: int, state: StreamState) -> int:
        """Return the first sequence of a stream that is behind the files of a partition."""
        batch = self.received.batches.get(partition)
        if batch is None or batch.stream != state.name:
            return state.first
        until = batch.until
        if batch.created not in {state.created, ""}:
            until = min(until, state.in_common_with(batch.created) or 0)
        return min(max(state.first, until), state.until)

    async def _search(self, parts: Sequence[ReceivedPart]) -> Groups:
        """Yield the lines of some files in order; others are searched meanwhile."""
        stopped, queues = Event(), [_Blocks(_BLOCKS) for _ in parts]
        workers = ThreadPoolExecutor(os.cpu_count() or 1)
        try:
            for part, queue in zip(parts, queues, strict=True):
                workers.submit(self._scan, part, queue, stopped)
            for part, queue in zip(parts, queues, strict=True):
                while (found := await asyncio.to_thread(queue.get)) is not None:
                    yield found
                self.status.show(self.status.read + part.size, part.ends)
        finally:
            stopped.set()
            workers.shutdown(wait=False, cancel_futures=True)

    def _scan(self, part: ReceivedPart, queue: _Blocks, stopped: Event) -> None:
        """Put what is found in a part into a queue, and None at its end."""
        try:
            with self.received.open(part) as file:
                for runs in scan(file, self._make_search(part), self.context, part.length):
                    found = [_make_found(part, one) for one in runs]
                    if stopped.is_set() or (found and not _put(queue, found, stopped)):
                        return
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            logger.warning("lines are missing: %s cannot be read: %s", part.path, error)
        _put(queue, None, stopped)

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


def _make_found(part: ReceivedPart, run: ScannedRun) -> Found:
    return Found(part.host, part.source, run.lines, is_context=run.is_context, begins=run.begins)


def _put(queue: _Blocks, found: list[Found] | None, stopped: Event) -> bool:
    """Put something into a queue as soon as there is space; return False if the search ended."""
    while not stopped.is_set():
        with suppress(Full):
            queue.put(found, timeout=_SOON)
            return True
    return False
