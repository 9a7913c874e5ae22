"""The data source `jetstream`: rows of the stream for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It keeps no state at the broker: what was read is known by the query's checkpoint alone, and a range is read again as
often as Spark wants it. It must not touch the receivers' consumers or offsets.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from receiver.source.options import DEFAULT_SERVERS, Edge, SourceOptions
from receiver.source.ranges import Range, between, refuse_rewind, split, without_loss
from receiver.source.rows import read_rows
from receiver.source.schema import columns
from receiver.source.secrets import with_secrets
from receiver.source.stream import stream_reader
from receiver.source.survey import ask, look, place

__all__ = ["JetStreamSource"]


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    A row is a section of a message, whole lines of one file: partition, sequence, time (of storage), subject, host, file,
    section (its number in the message, from 0), span (file, start, end), lines, payload (the lines, decompressed),
    headers. With `explode` a row is a line: partition, sequence, time, subject, host, file, pos (in its message, from 0),
    line, and headers on request. The lines of a host are in order by sequence and then section or pos.

    Where and what: servers, stream (LOGS), partitions (`0,3` or `all`) or subjects (filters such as `logs.*.web01`, also
    of streams that are not ours; partition and host are NULL where a subject names none).
    From and to: startingOffsets (earliest, latest, or sequences such as `{"3": 123}` by partition or subject),
    endingOffsets, startingTimestamp, endingTimestamp (milliseconds or ISO 8601), startingOffsetsByTimestampStrategy
    (latest or error: what to do where nothing is that young). Batches only: the ending ones.
    How much: maxBytesPerTrigger (about, as stored), maxOffsetsPerTrigger, minOffsetsPerTrigger with maxTriggerDelay
    (15m), minPartitions, maxRecordsPerPartition (in sequences).
    Rows: explode (false), lineType (string, binary), includeHeaders (true, with explode false), failOnDataLoss (true).
    Getting in: creds, nkey, tlsCa, tlsCert, tlsKey, tlsFirst, read where the tasks run; user with password or
    passwordFile, or tokenFile, read where the query is planned. Spark shows options, but what files hold it never sees.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns; they depend on `explode`, `lineType` and `includeHeaders` only."""
        return columns(self._parsed().show)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded query."""
        return _BatchReader(self._parsed())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        return stream_reader(self._parsed())

    def _parsed(self) -> SourceOptions:
        try:
            return SourceOptions.parse(with_secrets(self.options, DEFAULT_SERVERS))
        except ConfigurationError as error:
            # Spark shows a user the whole way that an error took; what is wrong stands at its end
            raise error.with_traceback(None) from None


class _BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        if options.starting is Edge.LATEST:
            raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
        self._options = options
        # earliest is whatever is still there; what expires meanwhile was never promised
        self._fail = options.fail_on_data_loss and options.starting not in (None, Edge.EARLIEST)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(item) for item in ask(self._options, self._plan)]

    async def _plan(self, connection: Connection) -> list[Range]:
        options = self._options
        state = await look(connection, options.stream)
        start = await place(connection, options, options.starting or Edge.EARLIEST, state)
        end = await place(connection, options, options.ending, state)
        refuse_rewind(end, state)
        ranges = without_loss(between(start, end), state, self._fail)
        return split(ranges, options.limits.least_pieces, options.limits.longest_piece)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(self._options, partition, self._fail)
