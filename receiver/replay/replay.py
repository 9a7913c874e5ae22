"""`logreceiver replay`: writes lines of the streams again, into files or to standard output.

The files are those that a receiver would have written. One process reads and writes hundreds of
megabytes a second; most replays take less time than Spark needs to start.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from stat import S_ISREG

from nats_logship.app.command_line import parse_range_options
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import open_folder
from nats_logship.app.progress import progress
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import LATEST
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_state import require_stream
from nats_logship.wire.endings import Endings
from receiver.replay.lines import LineRun, find_ranges, read_lines
from receiver.settings import ReplaySettings
from receiver.storage.disk import write_all
from receiver.storage.folders import Folders, make_synced_folder
from receiver.storage.layout import Days, Layout
from receiver.storage.live_paths import LivePaths
from receiver.storage.output import Output
from receiver.storage.rotation import load_zone
from receiver.storage.store import Store

_PROGRAM = "logreceiver replay"
_UNFINISHED = ".unfinished"
_SOON = 0.01  # seconds; lines that are due within this time are written at once

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReplaySummary:
    """What a replay wrote; `refused` counts messages without lines, `first_refused` names one."""

    lines: int = 0
    refused: int = 0
    first_refused: str = ""

    def as_text(self) -> str:
        """Return a line for people."""
        text = f"replayed {format_count(self.lines, 'line', form=',')}"
        if self.refused:
            messages = format_count(self.refused, "message")
            text += f"; {messages} could not be read as lines, for example {self.first_refused}"
        return text


def replay(settings: ReplaySettings) -> ReplaySummary:
    """Replay what the settings ask for; raises OperatorError and its kinds, click.UsageError.

    If it is killed, the folder still has a file `.unfinished`.
    """
    os.umask(0o027)
    since, until = parse_range_options(
        settings.since, settings.until, load_zone(settings.time_zone)
    )
    if settings.until == "now":
        until = LATEST  # the clocks may differ
    _, ranges = ask_broker(
        settings, _PROGRAM, lambda c: find_ranges(c, settings, since, until), ELECTION
    )
    try:
        summary = _write(settings, ranges)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; replay again, into an empty folder"
        ) from None
    gone = ask_broker(settings, _PROGRAM, lambda c: _find_purged(c, ranges), ELECTION)
    if gone:
        logger.warning("%s: no longer in the stream; their lines are missing", gone)
    return summary


def _write(settings: ReplaySettings, ranges: list[SequenceRange]) -> ReplaySummary:
    summary, size = ReplaySummary(), sum(max(0, one.until - one.first) for one in ranges)
    if not size:
        logger.warning("no messages were stored between --since and --until")
    is_shown = str(settings.output) == "-" and not S_ISREG(os.fstat(1).st_mode)
    writing = _onto_stdout() if str(settings.output) == "-" else _into_folder(settings)
    # a line of progress would be between the lines of a terminal
    with writing as write, progress("replaying", 0 if is_shown else size) as advance:
        runs = read_lines(settings, ranges, advance, settings.file)
        if settings.speed == "original":
            runs = pace(runs, time.monotonic, time.sleep)
        for run in runs:
            write(run)
            summary.lines += sum(piece.payload.count(b"\n") for piece in run.pieces)
            summary.refused += len(run.refused)
            summary.first_refused = summary.first_refused or next(iter(run.refused), "")
    return summary


async def _find_purged(connection: Connection, ranges: Iterable[SequenceRange]) -> str:
    """Return which sequences of the ranges the streams do not hold any more, empty for none."""
    firsts = [(one.first, (await require_stream(connection, one.stream)).first) for one in ranges]
    gone = (f"sequences {asked} to {first - 1}" for asked, first in firsts if asked < first)
    return "; ".join(gone)


def pace(
    runs: Iterable[LineRun], clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[LineRun]:
    """Yield the lines of runs in order, with the pauses with which the broker stored them."""
    ahead: float | None = None  # seconds from the time of storage to the clock
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
    """Yield a function that writes lines to standard output."""
    endings = Endings()

    def write(run: LineRun) -> None:
        data = b"".join(piece.join(endings, "") for piece in run.pieces)
        write_all(sys.stdout.fileno(), data)

    with suppress(BrokenPipeError):  # the reader has read enough
        yield write


@contextmanager
def _into_folder(settings: ReplaySettings) -> Iterator[Callable[[LineRun], None]]:
    """Yield a function that appends lines to the files of their hosts, in a folder of its own.

    The folder has a file `.unfinished` until all lines are on disk. Raises OSError, and
    `ConfigurationError` if the folder is not empty.
    """
    folder = settings.output.absolute()
    make_synced_folder(folder)
    if next(folder.iterdir(), None):
        raise ConfigurationError(f"{folder} is not empty: give a new or an empty folder")
    (folder / _UNFINISHED).touch(0o644)
    store, endings, zone = Store.in_memory(), Endings(), load_zone(settings.time_zone)
    paths = LivePaths(store, Layout(settings.path_template), Days(zone))
    with closing(Folders(folder)) as folders, Output(folders, store, paths, 0) as output:

        def write(run: LineRun) -> None:
            for piece in run.pieces:
                live = paths.choose(piece.host, piece.file or None, piece.stored_at)
                output.buffer(live, piece.join(endings, live), piece.stored_at)
            output.flush()

        yield write
        output.sync()
    with open_folder(folder) as opened:
        opened.sync()
    (folder / _UNFINISHED).unlink()
