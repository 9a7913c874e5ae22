"""`logreceiver replay`: what of the streams is wanted, and where its lines go.

One process reads and writes: it takes hundreds of megabytes a second, less time than Spark needs to start for most replays.
"""

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Protocol

from broker.app.exits import OperatorError
from broker.app.progress import progress
from broker.app.selection import LineSelection
from broker.app.untrusted import printable
from receiver.consume.judging import Endings, Piece
from receiver.replay.files import FileSettings, HostFiles, finish, prepare
from receiver.replay.reading import (
    Counts,
    LineReader,
    RefusedMessage,
    ReplaySpan,
    find_span,
    moment_of,
)
from receiver.settings import ReplaySettings, read_speed
from receiver.status.status import ask

__all__ = ["Pacing", "Sink", "Standard", "Summary", "play", "replay"]

_TOGETHER = 1024 * 1024  # bytes that are written at a time, and a part of a piece more
_MOST_SHOWN = 256  # characters of a path, which a host may make of 4,096 bytes
_SOON = 0.01  # seconds; lines that are due so close to one another go together

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay did with a span; `gone` says what the streams no longer held."""

    span: ReplaySpan
    counts: Counts
    gone: str

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        streams = {one.stream: [one.first, max(one.first, one.until)] for one in self.span.streams}
        return {"streams": streams, **asdict(self.counts), "gone": self.gone}

    def as_json(self) -> str:
        """Write it for programs."""
        return json.dumps(self.as_dict())

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

    Killed at any moment it leaves a folder that says so, and that the same command begins anew.
    """
    os.umask(0o027)
    try:
        return _replay(settings)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; the same command begins anew when that is mended"
        ) from None


def _replay(settings: ReplaySettings) -> Summary:
    span = _span(settings)
    if span.gone:
        logger.warning("%s: no longer in the stream", span.gone)
    is_piped = str(settings.output) == "-"
    order = _order(settings)
    if not is_piped:
        prepare(order.output)
    counts, gone = Counts(), span.gone
    if not span.length:
        logger.warning("nothing was stored in that time: nothing to replay")
    else:
        with _stopped_by_sigterm():
            counts = _written(settings, span, None if is_piped else order)
        gone = _removed_since(settings, span) or gone
    summary = Summary(span, counts, gone)
    if not is_piped:
        finish(order.output, summary.as_dict())
    return summary


def _written(settings: ReplaySettings, span: ReplaySpan, order: FileSettings | None) -> Counts:
    reader, speed = _reader(settings), read_speed(settings.speed)
    if order is None:
        return play(reader, span, speed, Standard(1, settings.prefix))
    with HostFiles(order) as files:
        counts = play(reader, span, speed, files)
        files.finish()
    return counts


def _reader(settings: ReplaySettings) -> LineReader:
    access = settings.access.absolute(Path.cwd())
    return LineReader(settings.server, access, LineSelection(settings.host, settings.file))


def _order(settings: ReplaySettings) -> FileSettings:
    return FileSettings(
        settings.output.absolute(),
        int(settings.rotate_size),
        settings.rotate_every,
        settings.time_zone,
        settings.compress,
        settings.path_template,
    )


def _span(settings: ReplaySettings) -> ReplaySpan:
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    numbers = None if settings.numbers is None else tuple(settings.numbers)
    since = moment_of("since", settings.since, now, settings.time_zone)
    is_open = settings.until == "now"
    until = None if is_open else moment_of("until", settings.until, now, settings.time_zone)
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


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise OperatorError("told to stop before the end; the same command begins anew")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Sink(Protocol):
    """A place for lines, in their order over all hosts."""

    def take(self, pieces: Sequence[Piece]) -> None:
        """Write lines; raises OSError."""

    def set_aside(self, refused: Iterable[RefusedMessage]) -> None:
        """Deal with messages that hold no lines."""


def play(reader: LineReader, span: ReplaySpan, speed: float, sink: Sink) -> Counts:
    """Bring the lines of a span to a sink, `speed` times as fast as they were stored, 0 at once; raises OSError and others."""
    counts = Counts()
    pacing = Pacing(speed, time.monotonic, time.sleep)
    with progress("replaying", span.length) as advance, _until_nobody_reads():
        for run in reader.span(span):
            sink.set_aside(run.refused)
            pacing.pass_on(run.pieces, sink.take)
            counts += run.counts
            advance(run.passed)
    return counts


@contextmanager
def _until_nobody_reads() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        logger.debug("whoever read the lines wanted no more")


class Pacing:
    """Lets pieces pass in groups, each when it is due: so long after the first as it was stored, by the speed."""

    def __init__(
        self, speed: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """`clock` and `sleep` are in seconds."""
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._began = 0.0
        self._origin = 0  # when the first piece was stored

    def pass_on(self, pieces: Sequence[Piece], take: Callable[[Sequence[Piece]], None]) -> None:
        """Give all of `pieces` to `take`, in order, not before they are due."""
        if not self._speed:
            take(pieces)
            return
        group: list[Piece] = []
        for piece in pieces:
            if not self._origin:
                self._began, self._origin = self._clock(), piece.stored_at
            left = self._due(piece) - self._clock()
            if left > _SOON:
                take(group)
                group = []
                self._sleep(left)
            group.append(piece)
        take(group)

    def _due(self, piece: Piece) -> float:
        return self._began + (piece.stored_at - self._origin) / 1e9 / self._speed


class Standard:
    """A descriptor that takes lines and nothing else."""

    def __init__(self, descriptor: int, prefixed: bool) -> None:
        """`prefixed` begins every line with host and file."""
        self._descriptor = descriptor
        self._endings = Endings()
        self._shape: Callable[[Piece], Iterable[bytes]] = _prefixed if prefixed else self._plain

    def take(self, pieces: Sequence[Piece]) -> None:
        """Write lines whole; raises BrokenPipeError when nobody reads any more."""
        parts: list[bytes] = []
        size = 0
        for part in chain.from_iterable(map(self._shape, pieces)):
            parts.append(part)
            size += len(part)
            if size >= _TOGETHER:
                self._write(b"".join(parts))
                parts, size = [], 0
        self._write(b"".join(parts))

    def set_aside(self, refused: Iterable[RefusedMessage]) -> None:
        """Leave messages without lines where they are: in the stream."""

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _plain(self, piece: Piece) -> Iterable[bytes]:
        return (self._endings.joined("", piece),)


def _prefixed(piece: Piece) -> Iterator[bytes]:
    """Yield the lines of a piece with host and file before each."""
    path = _shown(printable(piece.file))
    words = f"{printable(piece.host)}:{path}" if path else printable(piece.host)
    mark = words.encode("utf-8", "replace") + b": "
    for line in piece.payload.removesuffix(b"\n").split(b"\n"):
        yield mark + line + b"\n"


def _shown(path: str) -> str:
    return path if len(path) <= _MOST_SHOWN else f"{path[:_MOST_SHOWN]}…"
