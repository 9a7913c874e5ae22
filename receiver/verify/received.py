"""The files of a partition as its store has them at one moment, and their bytes. Reads only."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import zstandard

from receiver.storage.compression import compressed_form
from receiver.storage.folders import within
from receiver.storage.opening import opened
from receiver.storage.store import Store

__all__ = ["LiveFile", "Part", "Snapshot", "snapshot"]

_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A live file, or a segment that it was closed as, by its path below the output folder, not compressed.

    It has `length` bytes of lines, None where nobody has counted them. `number` is 0 for what has none.
    """

    path: str
    number: int
    length: int | None
    is_live: bool = False

    def pieces(self, output: Path) -> Iterator[bytes]:
        """Yield its lines, decompressed, those of a live file as far as the store has them; raises OSError."""
        left = self.length if self.is_live else None
        with within(output, self.path) as path, _open(path) as file:
            while left is None or left > 0:
                piece = file.read(_PIECE if left is None else min(_PIECE, left))
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file with its closed segments, oldest first; `holes` are numbers of segments that the store does not have.

    Where it `is_pruned`, older segments were there and are no longer kept. While it `is_changing`, a batch that is not stored
    yet closes it: it may have another name already.
    """

    parts: tuple[Part, ...]
    holes: tuple[int, ...] = ()
    is_pruned: bool = False
    is_changing: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store has at one moment: lines of all messages before `until`, of a stream made at `created`."""

    until: int
    created: str
    files: dict[str, LiveFile]
    last_day: str


def snapshot(store: Store, path: str = "") -> Snapshot | None:
    """Return what a store has, of one live file where its path is given; None where nothing was received yet.

    Raises OSError, `Damaged`.
    """
    with store.unchanged():
        batch = store.batch()
        rows = store.files("? IN ('', path)", path)
        segments = store.segments("? IN ('', live)", path)
        last_day = str(store.rows("SELECT coalesce(max(day), '') FROM files")[0][0])
    if batch is None:
        return None
    closed: dict[str, list[Part]] = {}
    changing: set[str] = set()
    for segment in segments:
        if segment.batch > batch.number:
            changing.add(segment.live)
            continue
        number = segment.number if segment.path != segment.live else 0
        closed.setdefault(segment.live, []).append(Part(segment.path, number, segment.length))
    files = {
        row.path: replace(
            _live_file(row.path, row.length, row.number, closed.get(row.path, [])),
            is_changing=row.path in changing,
        )
        for row in rows
    }
    return Snapshot(batch.until, batch.created, files, last_day)


def _live_file(path: str, length: int | None, next_number: int, closed: list[Part]) -> LiveFile:
    parts = sorted(closed, key=lambda part: part.number or next_number)
    if length is not None and not any(part.path == path for part in closed):
        parts.append(Part(path, 0, length, is_live=True))
    numbers = {part.number for part in parts} - {0}
    oldest = min(numbers, default=next_number)
    holes = tuple(sorted(set(range(oldest, next_number)) - numbers))
    return LiveFile(tuple(parts), holes, oldest > 1)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, or the compressed form that has taken its place; raises OSError."""
    suffix = ""
    try:
        raw = opened(path, "rb")
    except FileNotFoundError:
        form = compressed_form(path)
        if form is None:
            raise
        raw, suffix = opened(form, "rb"), form.suffix
    with raw:
        if suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as file:
                yield file  # type: ignore[misc]
        elif suffix:
            unpacker = zstandard.ZstdDecompressor()
            with unpacker.stream_reader(raw, read_across_frames=True, closefd=False) as stream:
                yield stream
        else:
            yield raw
