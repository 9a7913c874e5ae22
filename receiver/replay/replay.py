"""`logreceiver replay`: lines of the streams once more, into the files that a receiver would have written, or to standard output.

One process reads and writes: it takes hundreds of megabytes a second, less time than Spark needs to start for most replays.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import merge

import click

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import open_folder
from nats_logship.app.selection import LineSelection
from nats_logship.app.table import progress
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import parse_moment
from nats_logship.client import background
from nats_logship.client.config import require_layout
from nats_logship.client.connection import ELECTION, Connection, ask_broker, raise_for_operator
from nats_logship.client.find import EARLIEST, LATEST, StreamMessage, resolve_moment
from nats_logship.client.ranges import SequenceRange, read_range
from nats_logship.client.stream_state import require_stream
from nats_logship.wire.endings import Endings
from nats_logship.wire.message import MAX_LINES_BYTES
from nats_logship.wire.subjects import partition_filter
from receiver.consume.judging import Judge, Piece
from receiver.consume.poison import UNEXPECTED
from receiver.driver.partitions import request_partition_count
from receiver.settings import ReplaySettings, StreamSettings
from receiver.storage.disk import write_all
from receiver.storage.folders import Folders, make_synced_folder
from receiver.storage.layout import Days, Layout
from receiver.storage.names import LivePaths
from receiver.storage.output import Output
from receiver.storage.rotation import load_zone
from receiver.storage.store import Store

_PROGRAM = "logreceiver replay"
_MOST_MESSAGES = 2000  # of a run
_UNFINISHED = ".unfinished"
_SOON = 0.01  # seconds; lines that are due so close to one another go together

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LineRun:
    """Lines in the order in which the broker stored them, and which messages hold none that could be written, and why."""

    pieces: list[Piece] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ReplaySummary:
    """What a replay wrote: `refused` counts messages without lines; `first_refused` says why one has none."""

    lines: int = 0
    refused: int = 0
    first_refused: str = ""

    def as_text(self) -> str:
        """Write it for people."""
        text = f"replayed {format_count(self.lines, 'line', form=',')}"
        if self.refused:
            text += (
                f"; {format_count(self.refused, 'message', 'hold')} none, as {self.first_refused}"
            )
        return text


def replay(settings: ReplaySettings) -> ReplaySummary:
    """Replay what the settings ask for and return what was done; raises OperatorError kinds, click.UsageError.

    Killed at any moment it leaves a folder with a file `.unfinished` in it.
    """
    os.umask(0o027)
    since = parse_moment_option(settings, "since", settings.since)
    until = parse_moment_option(settings, "until", settings.until)
    _, ranges = ask_broker(
        settings, _PROGRAM, lambda c: find_ranges(c, settings, since, until), ELECTION
    )
    try:
        summary = _play(settings, ranges)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; mend that, and replay into an empty folder"
        ) from None
    if gone := ask_broker(
        settings, _PROGRAM, lambda connection: _gone(connection, ranges), ELECTION
    ):
        logger.warning("%s: no longer in the stream; lines of them may be absent", gone)
    return summary


def _play(settings: ReplaySettings, ranges: list[SequenceRange]) -> ReplaySummary:
    summary, size = ReplaySummary(), sum(max(0, one.until - one.first) for one in ranges)
    if not size:
        logger.warning("nothing was stored in that time: nothing to replay")
    writing = _onto_stdout() if str(settings.output) == "-" else _into_folder(settings)
    with writing as write, progress("replaying", size) as advance:
        runs = read_lines(settings, ranges, advance, settings.file)
        if settings.speed == "original":
            runs = pace(runs, time.monotonic, time.sleep)
        for run in runs:
            write(run)
            summary.lines += sum(piece.payload.count(b"\n") for piece in run.pieces)
            summary.refused += len(run.refused)
            summary.first_refused = summary.first_refused or next(iter(run.refused), "")
    return summary


async def _gone(connection: Connection, ranges: Iterable[SequenceRange]) -> str:
    """Return what retention has removed of what was to be read, empty for nothing."""
    firsts = [(one.first, (await require_stream(connection, one.stream)).first) for one in ranges]
    gone = (f"sequences {asked} to {first - 1}" for asked, first in firsts if asked < first)
    return "; ".join(gone)


def pace(
    runs: Iterable[LineRun], clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[LineRun]:
    """Yield the lines of runs in order, none before it is due: so many seconds after the first as it was stored."""
    ahead: float | None = None  # of the clock before the time of storage
    for run in runs:
        due = LineRun([], run.refused)
        for piece in run.pieces:
            stored = piece.stored_at / 1e9
            ahead = clock() - stored if ahead is None else ahead
            left = ahead + stored - clock()
            if left > _SOON:
                yield due
                due = LineRun()
                sleep(left)
            due.pieces.append(piece)
        yield due


@contextmanager
def _onto_stdout() -> Iterator[Callable[[LineRun], None]]:
    """Yield what writes lines, and nothing else, to standard output."""
    endings = Endings()

    def write(run: LineRun) -> None:
        data = b"".join(piece.joined(endings, "") for piece in run.pieces)
        write_all(sys.stdout.fileno(), data)

    with suppress(BrokenPipeError):  # whoever read wanted no more
        yield write


@contextmanager
def _into_folder(settings: ReplaySettings) -> Iterator[Callable[[LineRun], None]]:
    """Yield what appends lines to their hosts' files, in a folder that nobody else writes to.

    `.unfinished` lies in it until all is on disk. Raises OSError, and `ConfigurationError` where it holds anything.
    """
    folder = settings.output.absolute()
    make_synced_folder(folder)
    if next(folder.iterdir(), None):
        raise ConfigurationError(
            f"{folder} is not empty; a replay is written into a new or empty folder: give another --output"
        )
    (folder / _UNFINISHED).touch(0o644)
    store, endings, zone = Store.in_memory(), Endings(), load_zone(settings.time_zone)
    names = LivePaths(store, Layout(settings.path_template), Days(zone))
    with closing(Folders(folder)) as folders, Output(folders, store, names, 0) as output:

        def write(run: LineRun) -> None:
            for piece in run.pieces:
                live = names.choose(piece.host, piece.file or None, piece.stored_at)
                output.buffer(live, piece.joined(endings, live), piece.stored_at)
            output.flush()

        yield write
        output.sync()
    with open_folder(folder) as opened:
        opened.sync()
    (folder / _UNFINISHED).unlink()


def parse_moment_option(settings: StreamSettings, option: str, text: str) -> Moment:
    """Return the place in the stream that an option names; raises click.UsageError."""
    now = datetime.now(UTC)  # noqa: TID251 - words such as 2h count back from it
    try:
        return LATEST if text == "now" else parse_moment(text, now, load_zone(settings.time_zone))
    except ValueError as error:
        raise click.UsageError(f"--{option}: {error}") from None


async def find_ranges(
    connection: Connection, settings: StreamSettings, since: Moment, until: Moment = LATEST
) -> tuple[tuple[int, ...], list[SequenceRange]]:
    """Return the partitions that are wanted, and what of each stream lies between two moments.

    What a stream no longer holds of that time is within its range. Raises OperatorError kinds, `click.UsageError`.
    """
    layout = await require_layout(connection)
    partitions = settings.select_partitions(await request_partition_count(connection, layout))
    sequences = [one for one in (since, until) if isinstance(one, int)]
    if len(layout.names) > 1 and not {EARLIEST, LATEST}.issuperset(sequences):
        raise click.UsageError(
            f"a sequence is a place in one stream, and there are {len(layout.names)}; give a time"
        )
    subject = partition_filter(partitions[0]) if len(partitions) == 1 else ">"
    ranges = []
    for name in layout.names:
        state = await require_stream(connection, name)
        first, end = [await resolve_moment(connection, one, state) for one in (since, until)]
        if isinstance(since, datetime) and first == state.first:
            first = 1  # when those before were stored nobody knows any more
        ranges.append(SequenceRange(subject, first, min(end, state.until), name))
    return partitions, ranges


def read_lines(
    settings: StreamSettings,
    ranges: Iterable[SequenceRange],
    advance: Callable[[int], None] = lambda _: None,
    files: tuple[str, ...] = (),
) -> Iterator[LineRun]:
    """Yield the lines of the hosts and `files` that are wanted, in runs of at most 16 MiB and a message more.

    What retention has removed is left out. `advance` is told how many sequences were read. Raises `OperatorError`.
    """
    selection = LineSelection(settings.host, files)
    judge = Judge(wants=selection.wants_file)
    run, size = LineRun(), 0
    streams = [_messages(settings, one, advance) for one in ranges]
    for count, message in enumerate(merge(*streams, key=lambda message: message.stored_at), 1):
        _, partition, host = message.subject.split(".", 2)
        is_there = settings.numbers is None or int(partition[1:]) in settings.numbers
        if is_there and selection.wants_host(host):
            about = (message.subject, message.headers, message.payload, message.sequence)
            try:
                found = judge.take(*about, message.stored_at)
            except UNEXPECTED as error:  # a receiver puts such a message into quarantine
                run.refused.append(f"sequence {message.sequence}: {error}")
            else:
                run.pieces += found
                size += sum(len(piece.payload) for piece in found)
        if size >= MAX_LINES_BYTES or not count % _MOST_MESSAGES:
            yield run
            run, size = LineRun(), 0
            judge.anomalies.clear()
    yield run


def _messages(
    settings: StreamSettings, item: SequenceRange, advance: Callable[[int], None]
) -> Iterator[StreamMessage]:
    connection = background.connection(settings.server, settings.access)
    passed = item.first
    with raise_for_operator(connection):
        for messages in read_range(connection, item):
            yield from messages
            if messages:
                advance(messages[-1].sequence + 1 - passed)
                passed = messages[-1].sequence + 1
