"""`logreceiver replay`: lines of the streams once more, into the files that a receiver would have written, or to standard output.

One process reads and writes: it takes hundreds of megabytes a second, less time than Spark needs to start for most replays.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.progress import progress
from broker.app.selection import LineSelection
from broker.client.connection import Message
from broker.wire.delivery import Delivery
from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import (
    LineReader,
    RefusedMessage,
    ReplaySpan,
    find_span,
    moment_of,
    nanoseconds,
)
from receiver.settings import ReplaySettings
from receiver.status.status import ask
from receiver.storage.disk import sync_folder
from receiver.storage.folders import make_folder
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.output import Output
from receiver.storage.position import StoredBatch
from receiver.storage.quarantine import Quarantine
from receiver.storage.retention import compress_segment
from receiver.storage.rotation import Calendar
from receiver.storage.store import Store
from receiver.zones import named_zone

__all__ = ["Counts", "Pacing", "Summary", "replay"]

_UNFINISHED = ".unfinished"
_SOON = 0.01  # seconds; lines that are due so close to one another go together

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What was written: `size` in bytes of lines, `refused` messages without lines, `findings` gaps and repeats of files."""

    lines: int = 0
    size: int = 0
    refused: int = 0
    findings: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay did with a span; `gone` says what the streams no longer held."""

    span: ReplaySpan
    counts: Counts
    gone: str

    def as_json(self) -> str:
        """Write it for programs."""
        streams = {one.stream: [one.first, max(one.first, one.until)] for one in self.span.streams}
        return json.dumps({"streams": streams, **asdict(self.counts), "gone": self.gone})

    def as_text(self) -> str:
        """Write it for people."""
        counts = self.counts
        places = (f"{one.stream} {one.first} to {one.until - 1}" for one in self.span.streams)
        text = f"replayed {counts.lines:,} lines of sequences {', '.join(places)}"
        if counts.refused:
            text += f"; {counts.refused} messages hold none and lie in .quarantine"
        if counts.findings:
            text += f"; {counts.findings} gaps or repeats of source files met"
        return text


def replay(settings: ReplaySettings) -> Summary:
    """Replay what the settings ask for and return what was done; raises OperatorError kinds, click.UsageError.

    Killed at any moment it leaves a folder with a file `.unfinished` in it.
    """
    os.umask(0o027)
    try:
        return _replay(settings)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; mend that, and replay into an empty folder"
        ) from None


def _replay(settings: ReplaySettings) -> Summary:
    span, counts = _span(settings), Counts()
    gone = "; ".join(one.gone for one in span.streams if one.gone)
    if gone:
        logger.warning("%s: no longer in the stream", gone)
    if not span.length:
        logger.warning("nothing was stored in that time: nothing to replay")
    with ExitStack() as stack, suppress(BrokenPipeError):  # whoever read the lines wanted no more
        sink = _StandardOutput() if str(settings.output) == "-" else _Files(settings, stack)
        if span.length:
            _play(settings, span, sink, counts)
            gone = _removed_since(settings, span) or gone
        sink.finish()
    return Summary(span, counts, gone)


def _span(settings: ReplaySettings) -> ReplaySpan:
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    since = moment_of("since", settings.since, now, settings.time_zone)
    is_open = settings.until == "now"
    until = None if is_open else moment_of("until", settings.until, now, settings.time_zone)
    numbers = settings.numbers
    return ask(settings, "logreceiver replay", lambda c: find_span(c, numbers, since, until))


def _removed_since(settings: ReplaySettings, span: ReplaySpan) -> str:
    """Return what retention has removed meanwhile of what was to be read, empty for nothing."""
    now = {one.stream: one.earliest for one in _span(settings).streams}
    gone = "; ".join(
        f"sequences {one.first} to {min(now[one.stream], one.until) - 1}"
        for one in span.streams
        if one.length and now[one.stream] > one.first
    )
    if gone:
        logger.warning("%s were removed by retention meanwhile; lines of them may be absent", gone)
    return gone


class _Sink(Protocol):
    """A place for lines, in their order over all hosts."""

    def take(self, pieces: Sequence[Piece]) -> None:
        """Write lines; raises OSError."""

    def set_aside(self, refused: Iterable[RefusedMessage]) -> None:
        """Deal with messages that hold no lines."""

    def finish(self) -> None:
        """Bring everything to where it is to be; raises OSError."""


def _play(settings: ReplaySettings, span: ReplaySpan, sink: _Sink, counts: Counts) -> None:
    selection = LineSelection(settings.host, settings.file)
    reader = LineReader(settings.server, settings.access.absolute(Path.cwd()), selection)
    pacing = Pacing(time.monotonic, time.sleep)
    with progress("replaying", span.length) as advance:
        for run in reader.span(span, advance):
            sink.set_aside(run.refused)
            is_paced = settings.speed == "original"
            for pieces in pacing.groups(run.pieces) if is_paced else [run.pieces]:
                sink.take(pieces)
            counts.lines += sum(piece.payload.count(b"\n") for piece in run.pieces)
            counts.size += sum(len(piece.payload) for piece in run.pieces)
            counts.refused += len(run.refused)
            counts.findings += run.findings


class Pacing:
    """Lets pieces pass in groups, each when it is due: so long after the first as it was stored."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """`clock` and `sleep` are in seconds."""
        self._clock = clock
        self._sleep = sleep
        self._ahead: float | None = None  # of the clock before the time of storage

    def groups(self, pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
        """Yield all of `pieces`, in order, not before they are due."""
        group: list[Piece] = []
        for piece in pieces:
            stored = piece.stored_at / 1e9
            if self._ahead is None:
                self._ahead = self._clock() - stored
            left = self._ahead + stored - self._clock()
            if left > _SOON:
                yield group
                group = []
                self._sleep(left)
            group.append(piece)
        yield group


class _StandardOutput:
    """Lines and nothing else, on standard output; messages without lines are left where they are: in the stream."""

    def __init__(self) -> None:
        self._endings = Endings()

    def take(self, pieces: Sequence[Piece]) -> None:
        """Write lines whole; raises BrokenPipeError when nobody reads any more."""
        data = memoryview(b"".join(self._endings.joined("", piece) for piece in pieces))
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]

    def set_aside(self, refused: Iterable[RefusedMessage]) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing: everything was written at once."""


class _Files:
    """The files of one folder that nobody else writes to; `.unfinished` lies in it until all is done."""

    def __init__(self, settings: ReplaySettings, stack: ExitStack) -> None:
        """Make the folder; raises OSError, and `ConfigurationError` where it holds anything."""
        self._settings, self._folder = settings, settings.output.absolute()
        make_folder(self._folder)
        if next(self._folder.iterdir(), None):
            raise ConfigurationError(
                f"{self._folder} is not empty; a replay is written into a new or empty folder: give another --output"
            )
        (self._folder / _UNFINISHED).touch(0o644)
        zone = named_zone(settings.time_zone)
        self._store = Store.in_memory()
        self._names = Names(self._store, Layout(settings.path_template), Days(zone))
        calendar, size = Calendar(settings.rotate_every, zone), int(settings.rotate_size)
        self._output = Output(self._folder, self._store, self._names, size, calendar)
        stack.push(self._output.__exit__)
        self._endings = Endings()
        self._quarantines: dict[int, Quarantine] = {}

    def take(self, pieces: Sequence[Piece]) -> None:
        """Append pieces to their hosts' files, each host's in their order; raises OSError."""
        for piece in pieces:
            if self._output.is_full or not self._output.takes(piece.stored_at):
                self._end_batch()
            live = self._names.live_name(piece.host, piece.file or None, piece.stored_at)
            self._output.hold(live, self._endings.joined(live, piece), piece.stored_at)
        self._output.flush()

    def _end_batch(self) -> None:
        """Have the files that are full, or whose period is over, be closed by what comes next."""
        self._output.flush()
        with self._store.transaction():
            self._output.put(StoredBatch(self._output.batch, 0, 0, 0), {})
        self._output.begin()

    def set_aside(self, refused: Iterable[RefusedMessage]) -> None:
        """Set messages aside as a receiver does; raises OSError."""
        for one in refused:
            message, at = one.message, nanoseconds(one.message)
            partition = int(message.subject.split(".", 2)[1].removeprefix("p"))
            if partition not in self._quarantines:
                self._quarantines[partition] = Quarantine(self._folder, partition)
            self._quarantines[partition].set_aside(
                Delivery(1, message.sequence, 0, at, 0),
                Message(None, message.subject, data=message.payload, headers=message.headers),  # type: ignore[arg-type]
                one.reason,
            )

    def finish(self) -> None:
        """Bring everything to disk, and compress what was closed; raises OSError."""
        self._output.sync()
        for quarantine in self._quarantines.values():
            quarantine.sync()
        for name in self._output.closed:
            compress_segment(self._folder / name, self._settings.compress, lambda: False)
        sync_folder(self._folder)
        (self._folder / _UNFINISHED).unlink()
