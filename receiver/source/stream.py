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
from receiver.source.ranges import Loss, Range, StreamState, cut, kept, returned
from receiver.source.rows import read_rows
from receiver.source.survey import ask, look, sequence_of, streams_of

__all__ = ["StreamReader"]

_NEWS, _AGAIN = 0.5, 0.05  # seconds to wait for news, and between two looks


Place = dict[str, int]
"""`{"sequence": <next to read>, "created": <of its stream, microseconds since 1970>}`."""
Offset = dict[str, Place]
"""A place in each stream, by its name."""
States = dict[str, StreamState]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches: ranges of sequences between two offsets, which Spark keeps in the query's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` where the options give the query an end."""
        if options.ending is not None:
            raise ConfigurationError(
                "a streaming query has no end: endingOffsets and endingTimestamp are for batches"
            )
        self._options = options
        self._names: tuple[str, ...] = ()
        self._initial: Offset | None = None
        self._is_unwritten = False
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""

        async def begin(connection: Connection) -> Offset:
            starting = self._options.starting or Edge.LATEST
            states = await self._states(connection)
            self._is_unwritten = starting is Edge.LATEST
            return {
                name: _place(await sequence_of(connection, starting, state), state)
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

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
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
            name: self._next(place, states[name], is_limited=is_limited)
            for name, place in start.items()
        }

    def _next(self, place: Place, state: StreamState, *, is_limited: bool) -> Place:
        first = place["sequence"]
        moved = returned(first, place["created"], state, self._options.fail_on_data_loss)
        if moved is not None:
            # a batch without rows brings the query there: ranges over two streams mean nothing
            return _place(moved, state)
        until = state.until if self._target is None else min(self._target[state.name], state.until)
        if is_limited:
            until = min(until, max(first, state.first) + self._window(state))
        return _place(max(first, until), state)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where the streams end, for the query's progress."""
        return {name: _place(state.until, state) for name, state in self._look().items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the streams end now: the query ends there."""
        self._target = {name: state.until for name, state in self._look().items()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the ranges of a micro-batch: the same sequences however often Spark asks."""
        states = self._look()
        _require_same(start, states)
        return [
            InputPartition(item)
            for name, place in start.items()
            for item in self._ranges(place, end[name], states[name])
        ]

    def _ranges(self, start: Place, end: Place, state: StreamState) -> list[Range]:
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

    def _window(self, state: StreamState) -> int:
        """Return how many sequences of one of the streams a micro-batch may have."""
        most_bytes, most_offsets = self._options.most_bytes, self._options.most_offsets
        count = len(self._names)
        by_size = state.until if most_bytes is None else state.window_of(most_bytes // count)
        return by_size if most_offsets is None else min(by_size, max(1, most_offsets // count))

    async def _states(self, connection: Connection) -> States:
        self._names = self._names or await streams_of(connection, self._options)
        return {name: await look(connection, name) for name in self._names}

    def _look(self, known: Offset | None = None) -> States:
        """Look, and wait a moment for news while the streams end where `known` says: Spark asks a hundred times a second."""
        ends = {name: place["sequence"] for name, place in (known or {}).items()}

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


def _require_same(start: Offset, states: States) -> None:
    if start.keys() != states.keys():
        raise Loss(
            f"the query has read {', '.join(sorted(start))}, and the broker has {', '.join(sorted(states))}: start with "
            "a new checkpoint, or name the stream by the option stream"
        )


def _place(sequence: int, state: StreamState) -> Place:
    return {"sequence": sequence, "created": state.created}
