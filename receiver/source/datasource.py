"""The data source `jetstream`: rows of the stream for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It keeps no state at the broker: what was read is known by the query's checkpoint alone, and a range is read again as
often as Spark wants it. It must not touch the receivers' consumers or offsets.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broker.connection import Connection
from broker.exits import ConfigurationError
from receiver.reading import background
from receiver.source.direct import patiently
from receiver.source.options import Edge, SourceOptions
from receiver.source.ranges import (
    Range,
    StreamState,
    advance,
    between,
    joined,
    refuse_rewind,
    split,
    without_loss,
)
from receiver.source.reread import read
from receiver.source.schema import columns, record_batches
from receiver.source.survey import look, partitions_of, place

__all__ = ["JetStreamSource"]

_PLANNING = 60.0  # seconds for all questions of one planning step
Answer = TypeVar("Answer")


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    Columns: partition, sequence, time (of storage), subject, host, file, span (file, start, end), lines, payload (the
    lines, unfolded), and headers unless `includeHeaders` is false. A row is a block: one or more whole lines of one file.
    Options: servers, stream (LOGS), partitions (`0,3` or `all`), startingOffsets (earliest, latest, or sequences such
    as `{"3": 123}`), endingOffsets, startingTimestamp, endingTimestamp (milliseconds or ISO 8601), maxBytesPerTrigger
    (about, as stored), maxOffsetsPerTrigger, minPartitions, failOnDataLoss (true), includeHeaders (true).
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns; they depend on `includeHeaders` only."""
        return columns(SourceOptions.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded query."""
        return _BatchReader(SourceOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        return _StreamReader(SourceOptions.parse(self.options))


class _BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        if options.starting is Edge.LATEST:
            raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
        self._options = options
        # earliest is whatever is still there; what expires meanwhile was never promised
        self._fail = options.fail_on_data_loss and options.starting not in (None, Edge.EARLIEST)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(item) for item in _ask(self._options, self._plan)]

    async def _plan(self, connection: Connection) -> list[Range]:
        options = self._options
        state = await look(connection, options.stream)
        start = await place(connection, options, options.starting or Edge.EARLIEST, state)
        end = await place(connection, options, options.ending, state)
        refuse_rewind(end, state)
        ranges = without_loss(between(start, end), state, self._fail)
        return split(ranges, options.least_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition, self._fail)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"<partition>": <next sequence>}`, in the order of the partitions."""

    def __init__(self, options: SourceOptions) -> None:
        if options.ending is not Edge.LATEST:
            raise ConfigurationError("a streaming query has no end: endingOffsets is for batches")
        self._options = options
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        async def plan(connection: Connection) -> dict[int, int]:
            state = await look(connection, self._options.stream)
            starting = self._options.starting or Edge.LATEST
            return await place(connection, self._options, starting, state)

        return _written(_ask(self._options, plan))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._options.most_offsets is not None:
            return ReadMaxRows(self._options.most_offsets)
        if self._options.most_bytes is not None:
            return ReadMaxBytes(self._options.most_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        before = _parsed(start)
        state, partitions = _ask(self._options, self._look_around)
        refuse_rewind(before, state)
        if self._options.partitions is None:
            partitions = {*partitions, *before}
        target = state.until if self._target is None else min(self._target, state.until)
        window = None if isinstance(limit, ReadAllAvailable) else self._window(state)
        reached = {
            partition: max(first, min(state.first, target))
            for partition, first in joined(before, partitions).items()
        }
        return _written(advance(reached, target, window))

    async def _look_around(self, connection: Connection) -> tuple[StreamState, set[int]]:
        async def look_at_both() -> tuple[StreamState, set[int]]:
            state = await look(connection, self._options.stream)
            return state, set(await partitions_of(connection, self._options))

        return await patiently(connection, look_at_both)

    def _window(self, state: StreamState) -> int | None:
        options = self._options
        by_size = None if options.most_bytes is None else state.window_of(options.most_bytes)
        return min((n for n in (by_size, options.most_offsets) if n is not None), default=None)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        state, partitions = _ask(self._options, self._look_around)
        return _written(dict.fromkeys(partitions, state.until))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        state, _ = _ask(self._options, self._look_around)
        self._target = state.until

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        options = self._options
        state, _ = _ask(options, self._look_around)
        ranges = between(_parsed(start), _parsed(end))
        kept = without_loss(ranges, state, options.fail_on_data_loss)
        return [InputPartition(item) for item in split(kept, options.least_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition, self._options.fail_on_data_loss)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the query's checkpoint is the only one that knows."""

    def stop(self) -> None:
        background.wait(background.connection(self._options.servers).close(), _PLANNING)


def _ask(options: SourceOptions, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    async def ask() -> Answer:
        return await question(background.connection(options.servers))

    return background.wait(ask(), _PLANNING)


def _rows(
    options: SourceOptions, partition: InputPartition, fail: bool
) -> Iterator[pa.RecordBatch]:
    item: Any = partition.value
    if not isinstance(item, Range):
        return  # Spark asks for one partition even where there is none to read
    connection = background.connection(options.servers)
    for run in read(connection, options.stream, item, fail):
        yield from record_batches(item.partition, run, options.include_headers)


def _written(sequences: dict[int, int]) -> dict[str, int]:
    return {str(partition): sequences[partition] for partition in sorted(sequences)}


def _parsed(offsets: dict[str, int]) -> dict[int, int]:
    return {int(partition): int(sequence) for partition, sequence in offsets.items()}
