"""The data source `jetstream`: streams as rows for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It reads by sequence and keeps no state at the broker: only the query's checkpoint knows how far it
has read. It does not touch the consumers and offsets of receivers.
"""

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
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
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client import background
from nats_logship.client.answer import Rejected
from nats_logship.client.config import read_layout
from nats_logship.client.connection import Connection, retry_until_answered
from nats_logship.client.find import EARLIEST, LATEST, resolve_moment
from nats_logship.client.ranges import (
    AWAY,
    LostSequences,
    SequenceRange,
    read_range,
    require_unread,
)
from nats_logship.client.stream_state import StreamState, require_stream
from nats_logship.wire.streams import STREAM
from pyspark_jetstream.options import SourceOptions
from pyspark_jetstream.rows import columns, record_batches

_PROGRAM = "spark jetstream"  # the name of a query's connections at the broker
_POLLS, _POLL_EVERY = 10, 0.05  # for new messages, and seconds between them
_PLANNING = 60.0  # seconds for all requests of one planning step
_TASK_BYTES = 32 * 1024 * 1024  # as stored, read by one task

StreamOffset = dict[str, Any]
"""`{"sequence": <next to read>, "created": <when its stream was created>}`."""
Offsets = dict[str, StreamOffset]
"""How far a query has read each stream, by its name; Spark keeps them in the checkpoint."""
Answer = TypeVar("Answer")


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    A row is a section of a message, whole lines of one file; with `explode` it is a line. While a
    host stays in one partition, its lines are in order by `sequence` and then `section` or `pos`.
    docs/spark.md describes columns and options.

    Tasks read the files of credentials and certificates where they run: Spark never sees their
    content.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns; they depend on `explode` and `includeHeaders` only."""
        return columns(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return BatchReader(SourceOptions.parse(self.options))

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        return MicroBatchReader(SourceOptions.parse(self.options))


class _Reader:
    """The common part of both readers; with `fail` lost messages end the query."""

    def __init__(self, options: SourceOptions, *, fail: bool) -> None:
        self._options, self._fail = options, fail

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in a task, on the connection of this worker."""
        if isinstance(partition.value, SequenceRange):  # Spark also calls this without a range
            for messages in read_range(self._connection(), partition.value):
                yield from record_batches(messages, self._options)

    def _partitions(self, ranges: Iterable[SequenceRange]) -> list[InputPartition]:
        return [InputPartition(replace(one, fail_on_data_loss=self._fail)) for one in ranges]

    def _connection(self) -> Connection:
        return background.connection(self._options.servers, self._options.access, _PROGRAM)

    def _ask(self, question: Callable[[Connection], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the answer to a question of planning, on the connection of this process."""
        connection = self._connection()
        try:
            return background.wait(question(connection), _PLANNING)
        except TimeoutError:
            raise OperatorError(
                f"{connection.servers}: no answer about the streams in {_PLANNING:g} s"
            ) from None


class BatchReader(_Reader, DataSourceReader):
    """Plans a batch: the ranges between the starting and the ending offsets."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` if the options leave nothing to read."""
        if options.starting == LATEST:
            raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
        # `earliest` begins with the messages that there are, whichever expire meanwhile
        is_exact = options.starting not in {None, EARLIEST}
        super().__init__(options, fail=options.fail_on_data_loss and is_exact)

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the batch."""
        return self._partitions(self._ask(self._plan))

    async def _plan(self, connection: Connection) -> list[SequenceRange]:
        options, found = self._options, list[SequenceRange]()
        states = await _choose_streams(connection, options)
        for state in states.values():
            edges = (options.starting or EARLIEST, options.ending or LATEST)
            first, until = [await resolve_moment(connection, edge, state) for edge in edges]
            if self._fail:
                _require_same_stream(_offset(until, state), state)
                require_unread(first, until, state)
            first, until = max(first, state.first), min(until, state.until)
            found += plan_ranges(options, first, until, state, len(states))
        return found


class MicroBatchReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches: the ranges between two offsets of the query."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` if the options give the query an end."""
        if options.ending is not None:
            raise ConfigurationError(
                "a streaming query has no end: endingOffsets and endingTimestamp are for batches"
            )
        super().__init__(options, fail=options.fail_on_data_loss)
        self._initial: Offsets | None = None
        self._is_unwritten = False
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""
        starting = LATEST if self._options.starting is None else self._options.starting

        async def begin(connection: Connection) -> Offsets:
            states = await _choose_streams(connection, self._options)
            return {
                name: _offset(await resolve_moment(connection, starting, state), state)
                for name, state in states.items()
            }

        if self._initial is None:
            self._initial, self._is_unwritten = self._ask(begin), starting == LATEST
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that Spark hands to `latestOffset`."""
        most = self._options.max_offsets
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return where the next micro-batch ends."""
        if self._is_unwritten and start == self._initial:
            # The first batch is empty: it writes the beginning into the checkpoint. So `latest` is
            # resolved only once, even if the program dies.
            self._is_unwritten = False
            return start
        states = self._poll(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        share = max(1, most // len(start)) if most else None  # of each stream
        return {name: self._end_of(offset, states[name], share) for name, offset in start.items()}

    def _end_of(self, start: StreamOffset, state: StreamState, most: int | None) -> StreamOffset:
        """Return where a micro-batch of at most `most` sequences of a stream ends."""
        if not _is_same_stream(start, state):
            if self._fail:
                _require_same_stream(start, state)
            # A batch without rows moves the query to the new stream. One that was created again is
            # read from its beginning; one that was restored or rewound holds what was read.
            is_recreated = start["created"] != state.created
            return _offset(state.first if is_recreated else state.until, state)
        first = start["sequence"]
        until = min((self._target or {}).get(state.name, state.until), state.until)
        if most:
            until = min(until, max(first, state.first) + most)
        return _offset(max(first, until), state)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present ends of the streams, at which the query ends."""
        states = self._ask(lambda c: _choose_streams(c, self._options))
        self._target = {name: state.until for name, state in states.items()}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the ranges of a micro-batch: the same sequences however often Spark asks."""
        planned = list[SequenceRange]()
        for name, state in self._read_states(start).items():
            first, until = start[name]["sequence"], end[name]["sequence"]
            if end[name]["created"] != start[name]["created"]:
                continue  # this batch moved the query to a new stream
            if self._fail:
                _require_same_stream(end[name], state)
                require_unread(first, until, state)
            if _is_same_stream(end[name], state):
                first = max(first, state.first)
                planned += plan_ranges(self._options, first, until, state, len(start))
        return self._partitions(planned)

    def _poll(self, start: Offsets) -> dict[str, StreamState]:
        """Return the streams' states, after a short wait if there is no new message.

        Spark asks a hundred times a second.
        """
        for _ in range(_POLLS):
            states = self._read_states(start)
            is_new = any(states[name].until != one["sequence"] for name, one in start.items())
            if is_new or self._target is not None:
                break
            time.sleep(_POLL_EVERY)
        return states

    def _read_states(self, names: Iterable[str]) -> dict[str, StreamState]:
        return self._ask(lambda c: _states_of(c, names))


def plan_ranges(
    options: SourceOptions, first: int, until: int, state: StreamState, streams: int = 1
) -> list[SequenceRange]:
    """Return the ranges of `[first, until)` of one of so many streams, one for each task.

    There are at least `minPartitions` of them if there are as many sequences. Each subject filter
    has its own ranges; without a filter a range has about 32 MiB.
    """
    chosen = options.subjects or (">",)
    tasks = -(-options.min_partitions // streams)
    length = max(1, (until - first) * len(chosen) // tasks)
    if options.subjects is None:
        of_a_task = _TASK_BYTES * state.messages // max(1, state.size)  # on average
        length = min(length, max(1, of_a_task))
    return [
        SequenceRange(subject, begin, min(begin + length, until), state.name)
        for subject in chosen
        for begin in range(first, until, length)
    ]


def _offset(sequence: int, state: StreamState) -> StreamOffset:
    return {"sequence": sequence, "created": state.created}


def _is_same_stream(offset: StreamOffset, state: StreamState) -> bool:
    """Whether the stream is the one that was read: not created again, restored or rewound."""
    return bool(offset["created"] == state.created and offset["sequence"] <= state.until)


def _require_same_stream(offset: StreamOffset, state: StreamState) -> None:
    if not _is_same_stream(offset, state):
        raise LostSequences(
            f"stream {state.name} was created again or rewound: it ends at sequence "
            f"{state.until - 1}, and the query has read up to {offset['sequence'] - 1}; start with "
            "a new checkpoint, or set failOnDataLoss to false"
        )


async def _states_of(connection: Connection, names: Iterable[str]) -> dict[str, StreamState]:
    """Return the states of streams, as their leaders report them."""

    async def ask_all(connection: Connection) -> dict[str, StreamState]:
        return {name: await require_stream(connection, name) for name in names}

    return await retry_until_answered(connection, ask_all, AWAY)


async def _choose_streams(connection: Connection, options: SourceOptions) -> dict[str, StreamState]:
    """Return the states of the streams that a query reads: the named one, or all with partitions.

    Raises `ConfigurationError` if a sequence is given for several streams, `BrokerAway`,
    `ConnectionLost`.
    """
    await connection.connect()
    if options.stream is not None:
        return await _states_of(connection, [options.stream])
    try:
        layout = await retry_until_answered(connection, read_layout, AWAY)
    except Rejected:
        layout = None  # that's fine: a stream without our buckets
    names = layout.names if layout else (STREAM,)
    edges = {options.starting, options.ending} - {EARLIEST, LATEST}
    if len(names) > 1 and any(isinstance(one, int) for one in edges):
        raise ConfigurationError(
            f"a sequence belongs to one stream, and the broker has {len(names)}: name a stream by "
            "the option stream, or give startingTimestamp and endingTimestamp"
        )
    return await _states_of(connection, names)
