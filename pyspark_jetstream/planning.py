"""What batches and micro-batches share: reading a range, asking the broker, cutting ranges."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.timestamps import EARLIEST, LATEST
from nats_logship.client import background
from nats_logship.client.answer import Rejected
from nats_logship.client.config import read_layout
from nats_logship.client.connection import Connection, retry_until_answered
from nats_logship.client.find import find_message
from nats_logship.client.ranges import AWAY, SequenceRange, read_range, require_unread
from nats_logship.client.stream_state import StreamState, require_stream
from nats_logship.wire.message import MalformedMessage, decode_origin, decode_payload
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.streams import STREAM
from pyspark_jetstream.options import SourceOptions
from pyspark_jetstream.rows import record_batches

_PROGRAM = "spark jetstream"  # the name of a query's connections at the broker
_PLANNING = 60.0  # seconds for all requests of one planning step
_TASK_BYTES = 32 * 1024 * 1024  # of lines, read by one task
_SAMPLES, _SAMPLED = 8, 16  # messages that show how many lines there are: one of so many, at most
_SAMPLED_BYTES = 2 * 1024 * 1024  # as stored: a range of fewer bytes is not worth a sample
Answer = TypeVar("Answer")


class Reader:
    """The common part of both readers; with `fail` lost messages end the query."""

    def __init__(self, options: SourceOptions, *, fail: bool) -> None:
        """Remember the options; the first question connects."""
        self._options, self._fail = options, fail

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in a task, on the connection of this worker."""
        if isinstance(partition.value, SequenceRange):  # Spark also calls this without a range
            for messages in read_range(self._connection(), partition.value):
                yield from record_batches(messages, self._options)

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

    async def _plan_ranges(
        self, connection: Connection, first: int, until: int, state: StreamState
    ) -> list[InputPartition]:
        """Return ranges of `[first, until)` of a stream, one for each task, of about 32 MiB lines.

        There are at least `minPartitions` of them if there are as many sequences. Each subject
        filter has its own ranges, however many lines match it. Raises `LostSequences`.
        """
        if self._fail:
            require_unread(first, until, state)
        first = max(first, state.first)
        subjects = (">",) if self._options.subjects is None else self._options.subjects
        if not subjects or first >= until:
            return []
        length = max(1, (until - first) * len(subjects) // self._options.min_partitions)
        if self._options.subjects is None:
            width = await _measure_lines(connection, state, range(first, until))
            length = min(length, max(1, int(_TASK_BYTES / width)))
        cuts = [*range(first, until, length), until]
        return [
            InputPartition(SequenceRange(subject, begin, end, state.name, self._fail))
            for subject in subjects
            for begin, end in pairwise(cuts)
        ]


async def _measure_lines(connection: Connection, state: StreamState, span: range) -> float:
    """Return about how many bytes of lines a message has, by some of the range; at least 1.

    That is as many as are stored, if these are more or the range has few messages or bytes.
    """
    stored = max(1.0, state.size / max(1, state.messages))
    if len(span) * stored < _SAMPLED_BYTES:
        return stored
    step = max(_SAMPLED, len(span) // _SAMPLES)
    requests = [{"seq": at, "next_by_subj": ">"} for at in span[:-_SAMPLED:step]]
    asks = [partial(find_message, stream=state.name, request=one) for one in requests]
    sample = await asyncio.gather(*(retry_until_answered(connection, ask, AWAY) for ask in asks))
    lines, as_stored = map(sum, zip((0, 1), *map(_sizes, filter(None, sample)), strict=True))
    return stored * max(1.0, lines / as_stored)


def _sizes(message: StreamMessage) -> tuple[int, int]:
    """Return the bytes of a message's lines, and of all that is stored of it."""
    headers, payload = message.headers, message.payload
    stored = len(payload) + sum(len(name) + len(value) + 4 for name, value in headers.items())
    with suppress(MalformedMessage):
        origin = decode_origin(headers)
        return origin.size if origin else len(decode_payload(headers, payload)), stored
    return len(payload), stored


async def states_of(connection: Connection, names: Iterable[str]) -> dict[str, StreamState]:
    """Return the states of streams, as their leaders report them; raises as `require_stream`."""
    asks = {name: partial(require_stream, name=name) for name in names}
    return {n: await retry_until_answered(connection, ask, AWAY) for n, ask in asks.items()}


async def list_streams(connection: Connection, options: SourceOptions) -> Sequence[str]:
    """Return the names of the streams that a query reads: the named one, or all with partitions.

    Empty if the broker does not say how many there are. Raises `ConfigurationError`, `BrokerAway`,
    `ConnectionLost`.
    """
    await connection.connect()
    if options.stream is not None:
        return (options.stream,)
    with suppress(Rejected):  # that's fine: a stream without our buckets
        if layout := await retry_until_answered(connection, read_layout, AWAY):
            return layout.names
    return ()


async def choose_streams(connection: Connection, options: SourceOptions) -> dict[str, StreamState]:
    """Return the states of the streams that a query reads, at its beginning.

    Raises `ConfigurationError` if a sequence is given for several streams, or if it is behind the
    end of the stream; and as `list_streams`.
    """
    names = await list_streams(connection, options) or (STREAM,)
    given = {"startingOffsets": options.starting, "endingOffsets": options.ending}
    numbers = {k: v for k, v in given.items() if isinstance(v, int) and EARLIEST < v < LATEST}
    if len(names) > 1 and numbers:
        raise ConfigurationError(
            f"a sequence belongs to one stream, and the broker has {len(names)}: name a stream by "
            "the option stream, or give startingTimestamp and endingTimestamp"
        )
    states = await states_of(connection, names)
    for name, number in numbers.items() if options.fail_on_data_loss else ():
        if number > (until := states[names[0]].until):
            raise ConfigurationError(
                f"{name} {number} is behind the end of stream {names[0]}, whose next sequence is "
                f"{until}; was it created again? Give a smaller one, or latest"
            )
    return states
