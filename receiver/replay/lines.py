"""Lines of the streams in the order in which the broker stored them. Changes nothing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge

import click

from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import EARLIEST, LATEST, Moment
from nats_logship.client import background
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection, raise_for_operator
from nats_logship.client.find import resolve_moment
from nats_logship.client.ranges import SequenceRange, read_range
from nats_logship.client.stream_state import require_stream
from nats_logship.wire.message import MAX_LINES_BYTES
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.subjects import partition_filter
from receiver.consume.batch import UNEXPECTED
from receiver.consume.judging import Judge, Piece
from receiver.driver.partitions import request_partition_count
from receiver.settings import StreamSettings

_MOST_MESSAGES = 2000  # of a run


@dataclass(slots=True)
class LineRun:
    """Some lines in order; `refused` names messages without lines that could be written."""

    pieces: list[Piece] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


async def find_ranges(
    connection: Connection,
    settings: StreamSettings,
    since: Moment | None,
    until: Moment | None,
) -> tuple[tuple[int, ...], list[SequenceRange]]:
    """Return the selected partitions, and the range of each stream between two moments.

    None is no bound. A range includes what the stream does not hold any more. Raises OperatorError
    and its kinds, click.UsageError.
    """
    layout = await require_layout(connection)
    partitions = settings.select_partitions(await request_partition_count(connection, layout))
    since = EARLIEST if since is None else since
    until = LATEST if until is None else until
    sequences = [one for one in (since, until) if isinstance(one, int)]
    if len(layout.names) > 1 and not {EARLIEST, LATEST}.issuperset(sequences):
        raise click.UsageError(
            f"a sequence belongs to one stream, but there are {len(layout.names)}: give a time"
        )
    subject = partition_filter(partitions[0]) if len(partitions) == 1 else ">"
    ranges = []
    for name in layout.names:
        state = await require_stream(connection, name)
        first, end = [await resolve_moment(connection, one, state) for one in (since, until)]
        if isinstance(since, datetime) and first == state.first:
            first = 1  # messages before may have been stored after `since`, too
        end = min(end, state.until)
        one = SequenceRange(subject=subject, first=first, until=end, stream=name)
        ranges.append(one)
    return partitions, ranges


def read_lines(
    settings: StreamSettings,
    ranges: Iterable[SequenceRange],
    advance: Callable[[int], None] = lambda _: None,
    files: tuple[str, ...] = (),
) -> Iterator[LineRun]:
    """Yield the lines of the selected hosts and `files`, as a receiver writes them.

    A run has at most 16 MiB and one message more. `advance` gets the number of sequences read since
    its last call. Messages that are not in the stream any more are left out. Raises
    `OperatorError`.
    """
    selection = LineSelection(settings.host, files)
    judge = Judge(wants=selection.wants_file)
    run, size = LineRun(), 0
    streams = [_read_stream(settings, one, advance) for one in ranges]
    for count, message in enumerate(merge(*streams, key=lambda message: message.stored_at), 1):
        if _is_selected(settings, selection, message.subject):
            size += _add_lines(run, judge, message)
        if size >= MAX_LINES_BYTES or not count % _MOST_MESSAGES:
            yield run
            run, size = LineRun(), 0
            judge.anomalies.clear()
    yield run


def _is_selected(settings: StreamSettings, selection: LineSelection, subject: str) -> bool:
    _, partition, host = subject.split(".", 2)
    is_wanted = settings.numbers is None or int(partition[1:]) in settings.numbers
    return is_wanted and selection.wants_host(host)


def _add_lines(run: LineRun, judge: Judge, message: StreamMessage) -> int:
    """Add the lines of a message to a run; return how many bytes they have."""
    try:
        pieces = judge.take(
            message.subject,
            message.headers,
            message.payload,
            message.sequence,
            message.stored_at,
        )
    except UNEXPECTED as error:  # a receiver puts such a message into quarantine
        run.refused.append(f"sequence {message.sequence}: {error}")
        return 0
    run.pieces += pieces
    return sum(len(piece.payload) for piece in pieces)


def _read_stream(
    settings: StreamSettings, item: SequenceRange, advance: Callable[[int], None]
) -> Iterator[StreamMessage]:
    connection = background.connection(settings.server, settings.access)
    read = item.first
    with raise_for_operator(connection):
        for messages in read_range(connection, item):
            yield from messages
            if messages:
                advance(messages[-1].sequence + 1 - read)
                read = messages[-1].sequence + 1
