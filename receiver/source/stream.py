"""The reader of a streaming query: how far each micro-batch goes, and what becomes of it when the stream is another."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.wire.subjects import partition_filter
from receiver.source.direct import patiently
from receiver.source.options import Edge, SourceOptions
from receiver.source.patterns import partition_in
from receiver.source.ranges import (
    StreamState,
    advance,
    between,
    joined,
    returned,
    split,
    without_loss,
)
from receiver.source.rows import read_rows
from receiver.source.survey import ask, look, place, subjects_of

__all__ = ["stream_reader"]

_CREATED = "created"
_NEWS, _AGAIN = 0.5, 0.05  # seconds to wait for news, and between two looks


def stream_reader(
    options: SourceOptions, clock: Callable[[], float] = time.monotonic
) -> DataSourceStreamReader:
    """Return the reader that the options ask for; raises `ConfigurationError` where they give it an end."""
    if options.ending is not Edge.LATEST:
        raise ConfigurationError("a streaming query has no end: endingOffsets is for batches")
    return _StreamReader(options, clock)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"<partition or subject>": <next sequence>, "created": <of the stream, microseconds since 1970>}`."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._target: int | None = None
        self._triggered: float | None = None
        self._initial: dict[str, int] | None = None
        self._is_unwritten = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""

        async def plan(connection: Connection) -> dict[str, int]:
            state = await look(connection, self._options.stream)
            starting = self._options.starting or Edge.LATEST
            start = await place(connection, self._options, starting, state)
            self._is_unwritten = starting is Edge.LATEST
            return self._written(start, state.created)

        if self._initial is None:
            self._initial = ask(self._options, plan)
        return dict(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        limits = self._options.limits
        if limits.most_offsets is not None:
            return ReadMaxRows(limits.most_offsets)
        if limits.most_bytes is not None:
            return ReadMaxBytes(limits.most_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        if self._is_unwritten and start == self._initial:
            # An empty batch first: the checkpoint says then where the query began, and `latest` is asked for only once,
            # wherever the program may die.
            self._is_unwritten = False
            return start
        before, created = self._parsed(start)
        known = min(before.values(), default=None) if self._target is None else None
        state, subjects = self._look_around(known)
        moved = returned(before, created, state, self._options.fail_on_data_loss)
        if moved is not None:
            # a batch without rows brings the query there: ranges over two streams mean nothing
            return self._written(moved, state.created)
        target = state.until if self._target is None else min(self._target, state.until)
        window = None if isinstance(limit, ReadAllAvailable) else self._window(state)
        reached = {
            subject: max(first, min(state.first, target))
            for subject, first in joined(before, dict.fromkeys((*before, *subjects))).items()
        }
        if self._waits_for_more(target - min(reached.values(), default=target)):
            return start
        return self._written(advance(reached, target, window), state.created)

    def _look_around(self, known: int | None = None) -> tuple[StreamState, tuple[str, ...]]:
        """Look, and wait a moment for news while the stream ends at `known`: Spark asks a hundred times a second."""

        async def look_once(connection: Connection) -> tuple[StreamState, tuple[str, ...]]:
            stream, loop = self._options.stream, asyncio.get_running_loop()
            give_up = loop.time() + _NEWS
            while True:
                state = await look(connection, stream)
                if state.until != known or loop.time() >= give_up:
                    return state, await subjects_of(connection, self._options)
                await asyncio.sleep(_AGAIN)

        async def look_patiently(connection: Connection) -> tuple[StreamState, tuple[str, ...]]:
            return await patiently(connection, lambda: look_once(connection))

        return ask(self._options, look_patiently)

    def _waits_for_more(self, there: int) -> bool:
        least, now = self._options.limits.least_offsets, self._clock()
        if least is not None and self._target is None and self._triggered is not None:
            is_due = now - self._triggered >= self._options.limits.longest_delay.total_seconds()
            if there < least and not is_due:
                return True
        if there > 0:
            self._triggered = now
        return False

    def _window(self, state: StreamState) -> int | None:
        limits = self._options.limits
        by_size = None if limits.most_bytes is None else state.window_of(limits.most_bytes)
        return min((n for n in (by_size, limits.most_offsets) if n is not None), default=None)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        state, subjects = self._look_around()
        return self._written(dict.fromkeys(subjects, state.until), state.created)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        state, _ = self._look_around()
        self._target = state.until

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        options = self._options
        (first, created), (until, of) = self._parsed(start), self._parsed(end)
        state, _ = self._look_around()
        if created and of != created:
            return []  # on to a stream made anew
        if returned(until, of, state, options.fail_on_data_loss) is not None:
            return []  # what it is to read again went with the stream
        kept = without_loss(between(first, until), state, options.fail_on_data_loss)
        pieces = split(kept, options.limits.least_pieces, options.limits.longest_piece)
        return [InputPartition(item) for item in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(self._options, partition, self._options.fail_on_data_loss)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the query's checkpoint is the only one that knows."""

    def _written(self, sequences: dict[str, int], created: int) -> dict[str, int]:
        if not self._options.by_partition:
            return {**{name: sequences[name] for name in sorted(sequences)}, _CREATED: created}
        numbers = {partition_in(subject): sequence for subject, sequence in sequences.items()}
        known = sorted(number for number in numbers if number is not None)
        return {**{str(number): numbers[number] for number in known}, _CREATED: created}

    def _parsed(self, offsets: dict[str, int]) -> tuple[dict[str, int], int]:
        sequences = {name: int(n) for name, n in offsets.items() if name != _CREATED}
        if self._options.by_partition:
            sequences = {partition_filter(int(name)): n for name, n in sequences.items()}
        return sequences, int(offsets.get(_CREATED, 0))
