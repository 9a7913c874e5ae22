"""The data source `jetstream`: rows of the streams for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It keeps no state at the broker: what was read is known by the query's checkpoint alone, and a range is read again as
often as Spark wants it. It must not touch the receivers' consumers or offsets.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

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
from receiver.source.options import Edge, SourceOptions
from receiver.source.ranges import Range, cut, kept, refuse_rewind
from receiver.source.rows import columns, read_rows
from receiver.source.stream import StreamReader
from receiver.source.survey import ask, look, sequence_of, streams_of

__all__ = ["JetStreamSource"]


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    A row is a section of a message, whole lines of one file: partition, sequence, time (of storage), subject, host, file,
    section (its number in the message, from 0), span (file, start, end), lines, payload (the lines, decompressed),
    headers. With `explode` a row is a line: partition, sequence, time, subject, host, file, pos (in its message, from 0),
    line, and headers on request. The lines of a host are in order by sequence and then section or pos, as long as it is in one partition.

    Where and what: servers, stream (one, where not all that partitions live in are wanted); partitions (`0,3` or `all`), hosts (`web01,web02`) or subjects (filters such
    as `logs.p3.>`, also of streams that are not ours; partition and host are NULL where a subject names none).
    From and to: startingOffsets and endingOffsets (earliest, latest, or a sequence), startingTimestamp and
    endingTimestamp (of storage, milliseconds or ISO 8601; latest where nothing is that young). The ending ones are for
    batches only.
    How much: maxBytesPerTrigger (about, as stored), maxOffsetsPerTrigger, minPartitions.
    Rows: explode (false), lineType (string, binary), includeHeaders (true, with explode false), failOnDataLoss (true).
    Getting in: creds, nkey, tlsCa, tlsCert, tlsKey, tlsFirst, read where the tasks run; user with passwordFile or password,
    read where the query is planned. Spark shows options, but what files hold it never sees.
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
        return StreamReader(self._parsed())

    def _parsed(self) -> SourceOptions:
        try:
            return SourceOptions.parse(_with_password(self.options))
        except ConfigurationError as error:
            # Spark shows the whole traceback of an error; the message is at its end
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
        names = await streams_of(connection, self._options)
        pieces = -(-self._options.pieces // len(names))
        return [item for name in names for item in await self._cut(connection, name, pieces)]

    async def _cut(self, connection: Connection, stream: str, pieces: int) -> list[Range]:
        options = self._options
        starting, ending = options.starting or Edge.EARLIEST, options.ending or Edge.LATEST
        state = await look(connection, stream)
        first = await sequence_of(connection, starting, state)
        until = await sequence_of(connection, ending, state)
        refuse_rewind(until, state)
        first = kept(first, until, state, self._fail)
        return cut(options.subjects, first, until, pieces, state)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(self._options, partition, self._fail)


def _with_password(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the password that `passwordFile` holds, its first line; no plan of Spark's shows it."""
    given = {key.lower(): value for key, value in options.items()}
    path = given.pop("passwordfile", "").strip()
    if not path:
        return given
    if given.get("password"):
        raise ConfigurationError("password and passwordFile are two ways; give one of them")
    try:
        with Path(path).open(encoding="utf-8") as file:
            given["password"] = file.readline().rstrip("\r\n")
    except OSError as error:
        raise ConfigurationError(f"passwordFile: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"passwordFile: {path} holds no text") from None
    if not given["password"]:
        raise ConfigurationError(f"passwordFile: the first line of {path} is empty")
    return given
