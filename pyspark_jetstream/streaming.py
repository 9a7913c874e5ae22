"""Plans the micro-batches of a streaming query: the ranges between two of its offsets."""

import time
from typing import Annotated, TypedDict

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as spark

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import LATEST
from nats_logship.client.connection import Connection
from nats_logship.client.find import resolve_moment
from nats_logship.client.ranges import LostSequences
from nats_logship.client.stream_state import StreamState
from pyspark_jetstream.options import SourceOptions
from pyspark_jetstream.planning import Reader, choose_streams, list_streams, states_of

_POLLS, _POLL_EVERY = 10, 0.05  # for new messages, and seconds between them


class StreamOffset(TypedDict):
    """The sequence of a stream to read next, and when the stream was created."""

    sequence: Annotated[int, msgspec.Meta(gt=0)]
    created: str


Offsets = dict[str, StreamOffset]
"""How far a query has read each stream, by its name; Spark keeps them in the checkpoint."""


class MicroBatchReader(Reader, DataSourceStreamReader, spark.SupportsTriggerAvailableNow):
    """Plans micro-batches: the ranges between two offsets of the query.

    Streams that are added to the broker meanwhile are read from their beginning.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` if the options give the query an end, or filters."""
        if options.ending is not None:
            raise ConfigurationError(
                "a streaming query has no end: endingOffsets and endingTimestamp are for batches"
            )
        if options.push_down:
            raise ConfigurationError("Spark has no push-down for streaming queries: give hosts")
        super().__init__(options, fail=options.fail_on_data_loss)
        self._initial: Offsets | None = None
        self._is_unwritten = False
        self._target: dict[str, int] | None = None
        self._latest: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return where a new query begins, the same however often Spark asks."""
        starting = LATEST if self._options.starting is None else self._options.starting

        async def begin(connection: Connection) -> Offsets:
            states = await choose_streams(connection, self._options)
            return {
                name: _offset(await resolve_moment(connection, starting, state), state)
                for name, state in states.items()
            }

        if self._initial is None:
            self._initial, self._is_unwritten = self._ask(begin), starting == LATEST
        return self._initial

    def getDefaultReadLimit(self) -> spark.ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that Spark hands to `latestOffset`."""
        most = self._options.max_offsets
        return spark.ReadMaxRows(most) if most else spark.ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: spark.ReadLimit) -> Offsets:  # noqa: N802
        """Return where the next micro-batch ends."""
        if self._is_unwritten and start == self._initial:
            # The first batch is empty: it writes the beginning into the checkpoint. So `latest` is
            # resolved only once, even if the program dies.
            self._is_unwritten = False
            return start
        self._require_own(start)
        states = self._poll(start)
        most = limit.max_rows if isinstance(limit, spark.ReadMaxRows) else LATEST
        share = max(1, most // len(states))  # of each stream
        return {
            name: self._end_of(start.get(name) or _offset(state.first, state), state, share)
            for name, state in states.items()
        }

    def _poll(self, start: Offsets) -> dict[str, StreamState]:
        """Return the streams' states, after a short wait if there is no new message.

        Spark asks a hundred times a second.
        """
        names = (*start, *self._ask(lambda c: list_streams(c, self._options)))
        for _ in range(_POLLS):
            states = self._ask(lambda c: states_of(c, names))
            self._latest = {name: _offset(state.until, state) for name, state in states.items()}
            if self._target is not None or self._latest != start:
                break
            time.sleep(_POLL_EVERY)
        return states

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802 - Spark's name
        """Return the ends of the streams at the last poll, for the progress of the query."""
        return self._latest

    def _end_of(self, start: StreamOffset, state: StreamState, most: int) -> StreamOffset:
        """Return where a micro-batch of at most `most` sequences of a stream ends."""
        if not self._is_same_stream(start, state):
            # A batch without rows moves the query to the new stream. One that was created again is
            # read from its beginning; one that was restored or rewound holds what was read.
            is_recreated = start["created"] != state.created
            return _offset(state.first if is_recreated else state.until, state)
        first, until = start["sequence"], state.until
        if self._target is not None:
            until = min(self._target.get(state.name, 0), until)
        return _offset(max(first, min(until, max(first, state.first) + most)), state)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present ends of the streams, at which the query ends."""
        states = self._ask(lambda c: choose_streams(c, self._options))
        self._target = {name: state.until for name, state in states.items()}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the ranges of a micro-batch: the same sequences however often Spark asks."""
        self._require_own(start)

        async def plan(connection: Connection) -> list[InputPartition]:
            planned = list[InputPartition]()
            for name, state in (await states_of(connection, end)).items():
                until = end[name]["sequence"]
                begin = start.get(name, end[name] | {"sequence": min(state.first, until)})
                if end[name]["created"] != begin["created"]:
                    continue  # this batch moved the query to a new stream
                if self._is_same_stream(end[name], state):
                    planned += await self._plan_ranges(connection, begin["sequence"], until, state)
            return planned

        return self._ask(plan)

    def _is_same_stream(self, offset: StreamOffset, state: StreamState) -> bool:
        """Whether the stream is the one that was read: not created again, restored or rewound.

        Raises `LostSequences` if it is not, and this ends the query.
        """
        is_same = offset["created"] == state.created and offset["sequence"] <= state.until
        if self._fail and not is_same:
            raise LostSequences(
                f"stream {state.name} was created again or rewound: it ends at sequence "
                f"{state.until - 1}, and the query has read up to {offset['sequence'] - 1}; start "
                "with a new checkpoint, or set failOnDataLoss to false"
            )
        return is_same

    def _require_own(self, start: Offsets) -> None:
        """Raise `ConfigurationError` if a checkpoint is that of another query."""
        try:
            msgspec.convert(start, Offsets)
        except msgspec.ValidationError:
            reason = f"the checkpoint is not one of jetstream: it has {start}"
            raise ConfigurationError(reason) from None
        chosen = self._options.stream
        if chosen is not None and set(start) != {chosen}:
            raise ConfigurationError(
                f"the checkpoint is of {', '.join(start)}, and the option stream is {chosen}: "
                "start with a new checkpoint"
            )


def _offset(sequence: int, state: StreamState) -> StreamOffset:
    return {"sequence": sequence, "created": state.created}
