"""A host's received lines as one run of bytes: closed segments in the order of their numbers, then the live file. Reads only."""

import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from receiver.writing import rotation
from receiver.writing.folders import walk

__all__ = ["Received", "Segment", "closed", "received"]

_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a host; `number` is None for the live one, `length` its bytes when unpacked."""

    path: Path
    number: int | None
    length: int


@dataclass(frozen=True, slots=True)
class Received:
    """The newest segments of a host, oldest first, as far back as was asked for; `holes` are numbers that are not there."""

    segments: tuple[Segment, ...]
    holes: tuple[int, ...]

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


def received(folder: Path, lives: Sequence[str], names: Mapping[int, str], least: int) -> Received:
    """Return a host's newest segments that hold at least `least` bytes, or all; `names` are its closed ones by number.

    `lives` are the names that its unnumbered file may have, whichever of them are there, newest first. A live file that is renamed while this looks is found under one of its names. Raises OSError.
    """
    found: list[Segment] = []
    length = 0
    segments = [
        *((None, live) for live in lives),
        *((number, names[number]) for number in sorted(names, reverse=True)),
    ]
    for number, name in segments:
        if length >= least:
            break
        if segment := _segment(folder / name, number):
            found.insert(0, segment)
            length += segment.length
    numbers = [segment.number for segment in found if segment.number is not None]
    holes = set(range(min(numbers, default=0), max(numbers, default=0))) - set(numbers)
    return Received(tuple(found), tuple(sorted(holes)))


def _segment(path: Path, number: int | None) -> Segment | None:
    try:
        with _open(path) as file:
            if path.suffix in {".zst", ".gz"}:
                length = sum(map(len, iter(lambda: file.read(_PIECE), b"")))
            else:
                length = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        # compressed meanwhile: it has another name by now
        for suffix in (".zst", ".gz"):
            packed = path.with_name(path.name + suffix)
            if number is not None and packed.exists():
                return _segment(packed, number)
        return None
    return Segment(path, number, length)


def _pieces(segment: Segment, start: int) -> Iterator[bytes]:
    with _open(segment.path) as file:
        position = 0
        if segment.path.suffix not in {".zst", ".gz"}:
            position = file.seek(start)
        while position < segment.length:
            piece = file.read(min(_PIECE, segment.length - position))
            if not piece:
                return
            skipped = max(0, start - position)
            position += len(piece)
            if skipped < len(piece):
                yield piece[skipped:] if skipped else piece


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as raw:
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
