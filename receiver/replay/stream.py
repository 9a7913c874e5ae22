"""Lines of all partitions in the order of storage, at any speed: to standard output, or into files that grow in sight."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

from broker.app.printable import printable
from broker.app.progress import progress
from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import Counts, Reader, Refused
from receiver.replay.survey import Span

__all__ = ["Pacing", "Sink", "Standard", "play"]

logger = logging.getLogger(__name__)

_TOGETHER = 1024 * 1024  # bytes that are written at a time, and a part of a piece more
_MOST_SHOWN = 256  # characters of a path, which a host may make of 4,096 bytes
_SOON = 0.01  # seconds; lines that are due so close to one another go together


class Sink(Protocol):
    """A place for lines, in their order over all hosts."""

    def take(self, pieces: Sequence[Piece]) -> None:
        """Write lines; raises OSError."""

    def set_aside(self, refused: Iterable[Refused]) -> None:
        """Deal with messages that hold no lines."""


def play(reader: Reader, span: Span, speed: float, sink: Sink) -> Counts:
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

    def set_aside(self, refused: Iterable[Refused]) -> None:
        """Leave messages without lines where they are: in the stream."""

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _plain(self, piece: Piece) -> Iterable[bytes]:
        return (self._endings.joined("", piece),)


def _prefixed(piece: Piece) -> Iterator[bytes]:
    """Yield a piece with host and file before each line, in small parts: all of it may be hundreds of times as much."""
    path = _shown(printable(piece.file))
    words = f"{printable(piece.host)}:{path}" if path else printable(piece.host)
    mark = words.encode("utf-8", "replace") + b": "
    payload, end = piece.payload, len(piece.payload) - piece.payload.endswith(b"\n")
    most = max(1, _TOGETHER // (len(mark) + 1))
    yield mark
    for begin in range(0, end, most):
        yield payload[begin : min(begin + most, end)].replace(b"\n", b"\n" + mark)
    yield b"\n"


def _shown(path: str) -> str:
    return path if len(path) <= _MOST_SHOWN else f"{path[:_MOST_SHOWN]}…"
