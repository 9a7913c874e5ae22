"""A host's received lines as one run of bytes: closed segments in the order of their numbers, then the live file. Reads only."""

import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from receiver.storage import rotation
from receiver.storage.folders import walk
from receiver.storage.opening import opened

__all__ = ["Received", "Segment", "closed", "received"]

_PIECE = 1024 * 1024
_PACKED = (".zst", ".gz")


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a host; `number` is None for the live one, which is open, `length` its bytes when unpacked."""

    path: Path
    number: int | None
    length: int
    file: IO[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """The newest segments of a host, oldest first, as far back as was asked for; `holes` are numbers that are not there.

    `oldest` is the number of its oldest closed segment, 0 where there is none.
    """

    segments: tuple[Segment, ...]
    holes: tuple[int, ...]
    oldest: int

    @property
    def length(self) -> int:
        """Bytes of all of it."""
        return sum(segment.length for segment in self.segments)

    def pieces(self, start: int) -> Iterator[bytes]:
        """Yield the bytes from `start` on; a live file that has grown since is read as far as it was. Raises OSError."""
        for segment in self.segments:
            if start >= segment.length:
                start -= segment.length
                continue
            yield from _pieces(segment, start)
            start = 0

    def place(self, position: int) -> str:
        """Return where a byte lies: the name of the file, and the byte in it, unpacked."""
        for segment in self.segments:
            if position < segment.length or segment is self.segments[-1]:
                return f"{segment.path.name} at byte {position}"
            position -= segment.length
        return "no file"


@contextmanager
def received(
    folder: Path, lives: Sequence[str], least: int, names: Mapping[int, str] | None = None
) -> Iterator[Received]:
    """Have a host's newest segments at hand that hold at least `least` bytes, or all; `names` are its closed ones by number.

    `lives` are the names that its unnumbered file may have, whichever of them are there, newest first; the first is plain.
    Without `names` closed ones and the live file are those of one moment, also while a receiver rotates: the live file is
    held open, and stays what it was when it gets another name. Raises OSError.
    """
    live = lives[0]
    with ExitStack() as held:
        file = _hold(held, folder / live)
        while names is None:
            listed = closed(folder).get(live, {})
            if _is_named(file, folder / live):
                names = listed
            else:
                file = _hold(held, folder / live)
        yield _newest(folder, lives, least, names, file)


def _newest(
    folder: Path, lives: Sequence[str], least: int, names: Mapping[int, str], file: IO[bytes] | None
) -> Received:
    found: list[Segment] = []
    if file is not None:
        found.append(Segment(folder / lives[0], None, os.fstat(file.fileno()).st_size, file))
    length = sum(segment.length for segment in found)
    older = [
        *((None, live) for live in lives[1:]),
        *((number, names[number]) for number in sorted(names, reverse=True)),
    ]
    for number, name in older:
        if length >= least:
            break
        if segment := _segment(folder / name, number):
            found.insert(0, segment)
            length += segment.length
    numbers = [segment.number for segment in found if segment.number is not None]
    holes = set(range(min(numbers, default=0), max(numbers, default=0))) - set(numbers)
    return Received(tuple(found), tuple(sorted(holes)), min(names, default=0))


def _hold(held: ExitStack, path: Path) -> IO[bytes] | None:
    try:
        return held.enter_context(_open(path))
    except FileNotFoundError:
        return None


def _is_named(file: IO[bytes] | None, path: Path) -> bool:
    """Whether a path still leads to a file that was opened by it, or to none as then."""
    try:
        now = path.lstat()
    except FileNotFoundError:
        return file is None
    return file is not None and os.path.samestat(now, os.fstat(file.fileno()))


def _segment(path: Path, number: int | None) -> Segment | None:
    try:
        with _open(path) as file:
            if path.suffix in _PACKED:
                length = sum(map(len, iter(lambda: file.read(_PIECE), b"")))
            else:
                length = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        packed = None if number is None else _packed(path)
        return _segment(packed, number) if packed else None
    return Segment(path, number, length)


def _packed(path: Path) -> Path | None:
    """Return the name that a closed segment has by now if it was compressed meanwhile."""
    packed = (path.with_name(path.name + suffix) for suffix in _PACKED)
    return next((other for other in packed if other.exists()), None)


def _pieces(segment: Segment, start: int) -> Iterator[bytes]:
    if segment.file is not None:
        yield from _held_pieces(segment.file, start, segment.length)
        return
    path = segment.path
    if not path.exists() and (packed := _packed(path)):
        path = packed
    with _open(path) as file:
        position = 0
        if path.suffix not in _PACKED:
            position = file.seek(start)
        while position < segment.length:
            piece = file.read(min(_PIECE, segment.length - position))
            if not piece:
                return
            skipped = max(0, start - position)
            position += len(piece)
            if skipped < len(piece):
                yield piece[skipped:] if skipped else piece


def _held_pieces(file: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    while start < end and (piece := os.pread(file.fileno(), min(_PIECE, end - start), start)):
        start += len(piece)
        yield piece


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    with opened(path, "rb") as raw:
        if path.suffix == ".zst":
            unpacker = zstandard.ZstdDecompressor()
            with unpacker.stream_reader(raw, read_across_frames=True, closefd=False) as packed:
                yield packed
        elif path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield raw


def closed(folder: Path) -> dict[str, dict[int, str]]:
    """Return the closed segments of a folder: for each live name, number to name. Raises OSError."""
    return rotation.closed_segments(walk(folder))
