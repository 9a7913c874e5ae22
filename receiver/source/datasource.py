"""The data source `jetstream`: rows of the streams for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It keeps no state at the broker: what was read is known by the query's checkpoint alone, and a range is read again as
often as Spark wants it. It must not touch the receivers' consumers or offsets.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

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

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from receiver.source.options import Edge, SourceOptions
from receiver.source.planning import ask, look, sequence_of, streams_of
from receiver.source.ranges import (
    LostSequences,
    Range,
    StreamEnds,
    cut,
    kept,
    refuse_rewind,
    returned,
)
from receiver.source.reading import patiently
from receiver.source.rows import columns, read_rows

__all__ = ["JetStreamSource", "MicroBatchReader"]

_NEWS, _AGAIN = 0.5, 0.05  # seconds to wait for news, and between two looks

ReadUntil = dict[str, int]
"""`{"sequence": <next to read>, "created": <of its stream, microseconds since 1970>}`."""
Checkpoint = dict[str, ReadUntil]
"""How far each stream is read, by its name."""
States = dict[str, StreamEnds]


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    A row is a section of a message, whole lines of one file: partition, sequence, time (of storage), subject, host, file,
    section (its number in the message, from 0), span (file, start, end), lines, payload (the lines, decompressed),
    headers. With `explode` a row is a line: partition, sequence, time, subject, host, file, pos (in its message, from 0),
    line, and headers on request. The lines of a host are in order by sequence and then section or pos, as long as it is in one partition.

    Where and what: servers, stream (one, where not all that partitions live in are wanted); partitions (`0,3` or `all`) or
    hosts (`web01,web02`).
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
        return MicroBatchReader(self._parsed())

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


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches: ranges of sequences between two offsets, which Spark keeps in the query's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` where the options give the query an end."""
        if options.ending is not None:
            raise ConfigurationError(
                "a streaming query has no end: endingOffsets and endingTimestamp are for batches"
            )
        self._options = options
        self._names: tuple[str, ...] = ()
        self._initial: Checkpoint | None = None
        self._is_unwritten = False
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Checkpoint:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""

        async def begin(connection: Connection) -> Checkpoint:
            starting = self._options.starting or Edge.LATEST
            states = await self._states(connection)
            self._is_unwritten = starting is Edge.LATEST
            return {
                name: _read_until(await sequence_of(connection, starting, state), state)
                for name, state in states.items()
            }

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

    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:  # noqa: N802
        """Return where the next micro-batch ends."""
        if self._is_unwritten and start == self._initial:
            # An empty batch first: the checkpoint says then where the query began, and `latest` is asked for only once,
            # wherever the program may die.
            self._is_unwritten = False
            return start
        states = self._look(known=start if self._target is None else None)
        _require_same(start, states)
        is_limited = not isinstance(limit, ReadAllAvailable)
        return {
            name: self._next(since, states[name], is_limited=is_limited)
            for name, since in start.items()
        }

    def _next(self, since: ReadUntil, state: StreamEnds, *, is_limited: bool) -> ReadUntil:
        first = since["sequence"]
        moved = returned(first, since["created"], state, self._options.fail_on_data_loss)
        if moved is not None:
            # a batch without rows brings the query there: ranges over two streams mean nothing
            return _read_until(moved, state)
        until = state.until if self._target is None else min(self._target[state.name], state.until)
        if is_limited:
            until = min(until, max(first, state.first) + self._window(state))
        return _read_until(max(first, until), state)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the streams end now: the query ends there."""
        self._target = {name: state.until for name, state in self._look().items()}

    def partitions(self, start: Checkpoint, end: Checkpoint) -> list[InputPartition]:
        """Return the ranges of a micro-batch: the same sequences however often Spark asks."""
        states = self._look()
        _require_same(start, states)
        return [
            InputPartition(item)
            for name, since in start.items()
            for item in self._ranges(since, end[name], states[name])
        ]

    def _ranges(self, start: ReadUntil, end: ReadUntil, state: StreamEnds) -> list[Range]:
        options, fail = self._options, self._options.fail_on_data_loss
        if end["created"] != start["created"]:
            return []  # on to a stream made anew
        if returned(end["sequence"], end["created"], state, fail) is not None:
            return []  # what it is to read again went with the stream
        first = kept(start["sequence"], end["sequence"], state, fail)
        pieces = -(-options.pieces // len(self._names))
        return cut(options.subjects, first, end["sequence"], pieces, state)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in a task."""
        return read_rows(self._options, partition, self._options.fail_on_data_loss)

    def _window(self, state: StreamEnds) -> int:
        """Return how many sequences of one of the streams a micro-batch may have."""
        most_bytes, most_offsets = self._options.most_bytes, self._options.most_offsets
        count = len(self._names)
        by_size = state.until if most_bytes is None else state.window_of(most_bytes // count)
        return by_size if most_offsets is None else min(by_size, max(1, most_offsets // count))

    async def _states(self, connection: Connection) -> States:
        self._names = self._names or await streams_of(connection, self._options)
        return {name: await look(connection, name) for name in self._names}

    def _look(self, known: Checkpoint | None = None) -> States:
        """Look, and wait a moment for news while the streams end where `known` says: Spark asks a hundred times a second."""
        ends = {name: since["sequence"] for name, since in (known or {}).items()}

        async def look_once(connection: Connection) -> States:
            loop = asyncio.get_running_loop()
            give_up = loop.time() + _NEWS
            while True:
                states = await self._states(connection)
                found = {name: state.until for name, state in states.items()}
                if found != ends or loop.time() >= give_up:
                    return states
                await asyncio.sleep(_AGAIN)

        async def look_patiently(connection: Connection) -> States:
            return await patiently(connection, lambda: look_once(connection))

        return ask(self._options, look_patiently)


def _require_same(start: Checkpoint, states: States) -> None:
    if start.keys() != states.keys():
        raise LostSequences(
            f"the query has read {', '.join(sorted(start))}, and the broker has {', '.join(sorted(states))}: start with "
            "a new checkpoint, or name the stream by the option stream"
        )


def _read_until(sequence: int, state: StreamEnds) -> ReadUntil:
    return {"sequence": sequence, "created": state.created}


def _with_password(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the password that `passwordFile` holds, its first line; no plan of Spark's shows it."""
    given = {key.lower(): value for key, value in options.items()}
    path = given.pop("passwordfile", "").strip()
    if not path:
        return given
    if given.get("password"):
        raise ConfigurationError("password and passwordFile are two ways; give one of them")
    try:
        given["password"] = Path(path).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise ConfigurationError(f"passwordFile: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"passwordFile: {path} holds no text") from None
    if not given["password"]:
        raise ConfigurationError(f"passwordFile: the first line of {path} is empty")
    return given
