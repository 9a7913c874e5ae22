"""The reader of a bounded query: planned once, narrowed by what Spark's filters leave out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from receiver.source.asking import ask, rows
from receiver.source.narrowing import Wanted, narrow, wanted_by
from receiver.source.options import Edge, PushDown, SourceOptions
from receiver.source.ranges import Range, between, refuse_rewind, split, without_loss
from receiver.source.survey import look, place, sequence_at

__all__ = ["batch_reader"]


def batch_reader(options: SourceOptions) -> DataSourceReader:
    """Return the reader that the options ask for; raises `ConfigurationError` where they leave nothing to read."""
    if options.starting is Edge.LATEST:
        raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
    match options.push_down:
        case PushDown.NEVER:
            return _BatchReader(options)
        case PushDown.ALWAYS:
            return _PushingReader(options)
        case PushDown.AUTO:
            reader = _BatchReader(options)
            reader.pushFilters = _Offered(reader.take)  # type: ignore[method-assign]
            return reader


@dataclass(frozen=True, slots=True)
class _Offered:
    """A `pushFilters` that Spark may call and need not.

    While `spark.sql.python.filterPushdown.enabled` is false, as by default, Spark fails a query whose reader overrides
    `pushFilters`, and knows one by its `__func__` (pyspark.sql.worker.plan_data_source_read, 4.1 to 4.3).
    """

    take: Callable[[list[Filter]], Iterable[Filter]]

    @property
    def __func__(self) -> object:
        return DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self.take(filters)


class _BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = Wanted()
        # earliest is whatever is still there; what expires meanwhile was never promised
        self._fail = options.fail_on_data_loss and options.starting not in (None, Edge.EARLIEST)

    def take(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is read, and give all filters back: Spark applies them to the rows all the same."""
        self._wanted = wanted_by(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(item) for item in ask(self._options, self._plan)]

    async def _plan(self, connection: Connection) -> list[Range]:
        options = self._options
        state = await look(connection, options.stream)
        start = await place(connection, options, options.starting or Edge.EARLIEST, state)
        end = await place(connection, options, options.ending, state)
        refuse_rewind(end, state)
        ranges = without_loss(between(start, end), state, self._fail)
        narrowed = narrow(ranges, await self._translated(connection))
        return split(narrowed, options.limits.least_pieces, options.limits.longest_piece)

    async def _translated(self, connection: Connection) -> Wanted:
        wanted, stream = self._wanted, self._options.stream
        if wanted.since is not None:
            first = await sequence_at(connection, stream, wanted.since)
            if first is None:
                return replace(wanted, until=0)  # nothing is that young
            wanted = replace(wanted, first=max(wanted.first, first))
        if wanted.before is not None:
            until = await sequence_at(connection, stream, wanted.before)
            ends = [end for end in (wanted.until, until) if end is not None]
            wanted = replace(wanted, until=min(ends, default=None))
        return wanted

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows(self._options, partition, self._fail)


class _PushingReader(_BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        return self.take(filters)
