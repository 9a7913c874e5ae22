"""Where the driver of a replay brings lines to itself: one stream on standard output, or files at a pace."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

from broker.app.printable import printable
from receiver.consume.judging import Endings, Piece
from receiver.replay.again import Refused
from receiver.replay.files import Hosts, Order, keep_refused
from receiver.storage.quarantine import Quarantine

__all__ = ["HostFiles", "Sink", "Standard"]

_TOGETHER = 1024 * 1024  # bytes that are written at a time, and a part of a piece more
_MOST_SHOWN = 256  # characters of a path, which a host may make of 4,096 bytes


class Sink(Protocol):
    """A place for lines, in their order over all hosts."""

    def take(self, pieces: Sequence[Piece]) -> None:
        """Bring lines to it at once; raises OSError."""

    def refuse(self, refused: Refused) -> None:
        """Deal with a message that holds no lines."""

    def close(self) -> None:
        """Bring all of it to its end; raises OSError."""


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

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _plain(self, piece: Piece) -> Iterable[bytes]:
        return (self._endings.joined("", piece),)

    def refuse(self, refused: Refused) -> None:
        """Leave it where it is: in the stream."""

    def close(self) -> None:
        """Do nothing: all is written."""


class HostFiles:
    """The hosts' files in a folder, growing in sight."""

    def __init__(self, order: Order, folder: Path) -> None:
        """Open the folder; raises OSError."""
        self._folder = folder
        self._asides: dict[int, Quarantine] = {}
        names = order.names()
        self._output = order.output(folder, names)
        self._hosts = Hosts(self._output, names)

    def take(self, pieces: Sequence[Piece]) -> None:
        """Append lines to their hosts' files."""
        self._hosts.append(pieces)

    def refuse(self, refused: Refused) -> None:
        """Set a message aside as a receiver does."""
        number = refused.partition
        aside = self._asides.setdefault(number, Quarantine(self._folder, number))
        keep_refused(aside, [refused])

    def close(self) -> None:
        """Bring everything to disk."""
        self._output.sync()
        for aside in self._asides.values():
            aside.sync()


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
