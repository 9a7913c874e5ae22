"""The reader of a streaming query. Its checkpoint alone knows how far the query is: nothing is kept at the broker."""

import asyncio
from collections.abc import Iterator

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
from receiver.source.direct import patiently
from receiver.source.options import Edge, SourceOptions
from receiver.source.ranges import StreamState, cut, kept, returned
from receiver.source.rows import read_rows
from receiver.source.survey import ask, look, sequence_of

__all__ = ["StreamReader"]

_NEWS, _AGAIN = 0.5, 0.05  # seconds to wait for news, and between two looks


Offset = dict[str, int]
"""`{"sequence": <next to read>, "created": <of its stream, microseconds since 1970>}`."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches: ranges of sequences between two offsets, which Spark keeps in the query's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` where the options give the query an end."""
        if options.ending is not None:
            raise ConfigurationError(
                "a streaming query has no end: endingOffsets and endingTimestamp are for batches"
            )
        self._options = options
        self._initial: Offset | None = None
        self._is_unwritten = False
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""

        async def begin(connection: Connection) -> Offset:
            stream, starting = self._options.stream, self._options.starting or Edge.LATEST
            state = await look(connection, stream)
            self._is_unwritten = starting is Edge.LATEST
            return _offset(await sequence_of(connection, stream, starting, state), state)

        if self._initial is None:
            self._initial = ask(self._options, begin)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit for Spark to hand back; it knows none of bytes and rows together."""
        if self._options.most_offsets is not None:
            return ReadMaxRows(self._options.most_offsets)
        if self._options.most_bytes is not None:
            return ReadMaxBytes(self._options.most_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next micro-batch ends."""
        if self._is_unwritten and start == self._initial:
            # An empty batch first: the checkpoint says then where the query began, and `latest` is asked for only once,
            # wherever the program may die.
            self._is_unwritten = False
            return start
        first = start["sequence"]
        state = self._look(known=first if self._target is None else None)
        moved = returned(first, start["created"], state, self._options.fail_on_data_loss)
        if moved is not None:
            # a batch without rows brings the query there: ranges over two streams mean nothing
            return _offset(moved, state)
        until = state.until if self._target is None else min(self._target, state.until)
        if not isinstance(limit, ReadAllAvailable):
            until = min(until, max(first, state.first) + self._window(state))
        return _offset(max(first, until), state)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where the stream ends, for the query's progress."""
        state = self._look()
        return _offset(state.until, state)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the stream ends now: the query ends there."""
        self._target = self._look().until

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the ranges of a micro-batch: the same sequences however often Spark asks."""
        options, fail = self._options, self._options.fail_on_data_loss
        state = self._look()
        if end["created"] != start["created"]:
            return []  # on to a stream made anew
        if returned(end["sequence"], end["created"], state, fail) is not None:
            return []  # what it is to read again went with the stream
        first = kept(start["sequence"], end["sequence"], state, fail)
        ranges = cut(options.subjects, first, end["sequence"], options.pieces, state)
        return [InputPartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in a task."""
        return read_rows(self._options, partition, self._options.fail_on_data_loss)

    def _window(self, state: StreamState) -> int:
        """Return how many sequences a micro-batch may have."""
        most_bytes, most_offsets = self._options.most_bytes, self._options.most_offsets
        by_size = state.until if most_bytes is None else state.window_of(most_bytes)
        return by_size if most_offsets is None else min(by_size, most_offsets)

    def _look(self, known: int | None = None) -> StreamState:
        """Look, and wait a moment for news while the stream ends at `known`: Spark asks a hundred times a second."""

        async def look_once(connection: Connection) -> StreamState:
            loop = asyncio.get_running_loop()
            give_up = loop.time() + _NEWS
            while True:
                state = await look(connection, self._options.stream)
                if state.until != known or loop.time() >= give_up:
                    return state
                await asyncio.sleep(_AGAIN)

        async def look_patiently(connection: Connection) -> StreamState:
            return await patiently(connection, lambda: look_once(connection))

        return ask(self._options, look_patiently)


def _offset(sequence: int, state: StreamState) -> Offset:
    return {"sequence": sequence, "created": state.created}
