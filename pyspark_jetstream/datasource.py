"""The data source `jetstream`: rows of the streams for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It keeps no state at the broker: what was read is known by the query's checkpoint alone, and a range is read again as
often as Spark wants it. It must not touch the receivers' consumers or offsets.
"""

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
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

_PROGRAM = "spark jetstream"
"""What the broker's views of connections call a query."""
_LOOKS, _AGAIN = 10, 0.05  # for news, and seconds between two
_PLANNING = 60.0  # seconds for all questions of one planning step
_PIECE_BYTES = 32 * 1024 * 1024

ReadUntil = dict[str, Any]
"""`{"sequence": <next to read>, "created": <of its stream>}`."""
Checkpoint = dict[str, ReadUntil]
"""How far each stream is read, by its name."""
Answer = TypeVar("Answer")


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    A row is a section of a message, whole lines of one file, or with `explode` a line. The lines of a host are in order by
    sequence and then section or pos, as long as it is in one partition. docs/spark.md describes columns and options.

    Files of credentials and certificates are read where the tasks run: what they hold Spark never sees.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns; they depend on `explode` and `includeHeaders` only."""
        return columns(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded query."""
        return _BatchReader(SourceOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        return MicroBatchReader(SourceOptions.parse(self.options))


class _Reader:
    """What readers of batches and of micro-batches have in common; `fail` ends the query where lines were lost."""

    def __init__(self, options: SourceOptions, *, fail: bool) -> None:
        self._options, self._fail = options, fail

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in a task, on the connection of this worker; Spark ends a worker that is idle."""
        if isinstance(
            partition.value, SequenceRange
        ):  # Spark asks for one even where none was planned
            for run in read_range(self._connection(), partition.value, fail=self._fail):
                yield from record_batches(run, self._options)

    def _connection(self) -> Connection:
        return background.connection(self._options.servers, self._options.access, _PROGRAM)

    def _ask(self, question: Callable[[Connection], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the answer to a question of planning, asked on the connection of this process."""
        connection = self._connection()
        try:
            return background.wait(question(connection), _PLANNING)
        except TimeoutError:
            raise OperatorError(
                f"{connection.servers}: no answer about the streams in {_PLANNING:g} s"
            ) from None


class _BatchReader(_Reader, DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        if options.starting == LATEST:
            raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
        # earliest is whatever is still there; what expires meanwhile was never promised
        is_exact = options.starting not in {None, EARLIEST}
        super().__init__(options, fail=options.fail_on_data_loss and is_exact)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(item) for item in self._ask(self._plan)]

    async def _plan(self, connection: Connection) -> list[SequenceRange]:
        options, found = self._options, list[SequenceRange]()
        states = await _chosen(connection, options)
        for state in states.values():
            edges = (options.starting or EARLIEST, options.ending or LATEST)
            first, until = [await resolve_moment(connection, edge, state) for edge in edges]
            _moved(_read_until(until, state), state, fail=self._fail)
            if self._fail:
                require_unread(first, until, state)
            found += cut(
                options, max(first, state.first), min(until, state.until), state, len(states)
            )
        return found


class MicroBatchReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches: ranges of sequences between two offsets, which Spark keeps in the query's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` where the options give the query an end."""
        if options.ending is not None:
            raise ConfigurationError(
                "a streaming query has no end: endingOffsets and endingTimestamp are for batches"
            )
        super().__init__(options, fail=options.fail_on_data_loss)
        self._initial: Checkpoint | None = None
        self._is_unwritten = False
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Checkpoint:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""
        starting = LATEST if self._options.starting is None else self._options.starting

        async def begin(connection: Connection) -> Checkpoint:
            states = await _chosen(connection, self._options)
            return {
                name: _read_until(await resolve_moment(connection, starting, state), state)
                for name, state in states.items()
            }

        if self._initial is None:
            self._initial, self._is_unwritten = self._ask(begin), starting == LATEST
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit for Spark to hand back."""
        most = self._options.most_offsets
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:  # noqa: N802
        """Return where the next micro-batch ends."""
        if self._is_unwritten and start == self._initial:
            # An empty batch first: the checkpoint says then where the query began, and `latest` is asked for only once,
            # wherever the program may die.
            self._is_unwritten = False
            return start
        found = self._news(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        window = max(1, most // len(start)) if most else None  # of sequences of each stream
        return {name: self._next(since, found[name], window) for name, since in start.items()}

    def _next(self, since: ReadUntil, state: StreamState, window: int | None) -> ReadUntil:
        first = since["sequence"]
        moved = _moved(since, state, fail=self._fail)
        if moved is not None:
            # a batch without rows brings the query there: ranges over two streams mean nothing
            return _read_until(moved, state)
        until = min((self._target or {}).get(state.name, state.until), state.until)
        if window:
            until = min(until, max(first, state.first) + window)
        return _read_until(max(first, until), state)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the streams end now: the query ends there."""
        states = self._ask(lambda c: _chosen(c, self._options))
        self._target = {name: state.until for name, state in states.items()}

    def partitions(self, start: Checkpoint, end: Checkpoint) -> list[InputPartition]:
        """Return the ranges of a micro-batch: the same sequences however often Spark asks."""
        options, fail = self._options, self._fail
        planned = list[SequenceRange]()
        for name, state in self._look(start).items():
            first, until = start[name]["sequence"], end[name]["sequence"]
            if end[name]["created"] != start[name]["created"]:
                continue  # on to a stream made anew
            if _moved(end[name], state, fail=fail) is not None:
                continue  # what it is to read again went with the stream
            if fail:
                require_unread(first, until, state)
            planned += cut(options, max(first, state.first), until, state, len(start))
        return [InputPartition(item) for item in planned]

    def _news(self, start: Checkpoint) -> dict[str, StreamState]:
        """Look, and wait a moment for news where there is none: Spark asks a hundred times a second."""
        for _ in range(_LOOKS):
            found = self._look(start)
            has_news = any(found[name].until != since["sequence"] for name, since in start.items())
            if has_news or self._target is not None:
                break
            time.sleep(_AGAIN)
        return found

    def _look(self, names: Iterable[str]) -> dict[str, StreamState]:
        return self._ask(lambda c: _states_of(c, names))


def cut(
    options: SourceOptions, first: int, until: int, state: StreamState, streams: int = 1
) -> list[SequenceRange]:
    """Return the ranges of `[first, until)` of one of so many streams, one for each task.

    There are as many as `minPartitions` asks for, where there are as many sequences. Each subject filter has ranges of its
    own; without one, the whole of the stream is cut into ranges of about 32 MiB.
    """
    chosen = options.subjects or (">",)
    pieces = -(-options.pieces // streams)
    length = max(1, (until - first) * len(chosen) // pieces)
    if options.subjects is None:
        of_a_piece = _PIECE_BYTES * state.messages // max(1, state.size)  # on an average
        length = min(length, max(1, of_a_piece))
    return [
        SequenceRange(subject, begin, min(begin + length, until), state.name)
        for subject in chosen
        for begin in range(first, until, length)
    ]


def _moved(since: ReadUntil, state: StreamState, *, fail: bool) -> int | None:
    """Return where to read on in a stream that is not the one that was read; None while it is.

    A stream made anew is read from its beginning, one that went back (restored from a backup) from its end, since what
    it holds was read. Raises `LostSequences` instead when `fail`.
    """
    is_anew = since["created"] != state.created
    if not is_anew and since["sequence"] <= state.until:
        return None
    if fail:
        raise LostSequences(
            f"stream {state.name} was made anew or went back: it ends at sequence {state.until - 1}, and the query has "
            f"read one up to {since['sequence'] - 1}; start with a new checkpoint, or set failOnDataLoss to false"
        )
    return state.first if is_anew else state.until


def _read_until(sequence: int, state: StreamState) -> ReadUntil:
    return {"sequence": sequence, "created": state.created}


async def _states_of(connection: Connection, names: Iterable[str]) -> dict[str, StreamState]:
    """Return what streams hold, by leaders that are sure of it."""

    async def look_at_all(connection: Connection) -> dict[str, StreamState]:
        return {name: await require_stream(connection, name) for name in names}

    return await retry_until_answered(connection, look_at_all, AWAY)


async def _chosen(connection: Connection, options: SourceOptions) -> dict[str, StreamState]:
    """Return what the streams hold that a query reads: the one that is named, or all that partitions live in.

    Raises `ConfigurationError` where a sequence is to be the same place in several streams, `BrokerAway`, `ConnectionLost`.
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
            f"sequences count within a stream, and the broker has {len(names)}: name one by the option stream, or give "
            "startingTimestamp and endingTimestamp"
        )
    return await _states_of(connection, names)
