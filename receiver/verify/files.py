"""The files of a partition as its store knows them, and the lines in them, compressed or not. Reads only."""

import gzip
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import zstandard

from nats_logship.app.files import Folder
from receiver.storage.folders import Folders, open_parent
from receiver.storage.layout import Layout
from receiver.storage.rows import SegmentRow
from receiver.storage.segments import find_compressed
from receiver.storage.store import Store

READ = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A live file, or a segment that it was closed as, of `length` bytes of lines."""

    path: str
    length: int
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A live file with its closed segments, oldest first, by a store that has all messages before `until`.

    Where it `is_pruned`, older segments are no longer kept.
    """

    until: int
    parts: tuple[Part, ...]
    is_pruned: bool

    def newest(self, size: int) -> Iterator[tuple[Part, int]]:
        """Yield the parts that hold the newest `size` bytes, with how many bytes of each are older."""
        skipped = max(0, sum(part.length for part in self.parts) - size)
        for part in self.parts:
            if skipped < part.length:
                yield part, skipped
            skipped = max(0, skipped - part.length)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one partition: what `store` has of them, and what is in `output`."""

    store: Store
    output: Path
    layout: Layout

    def find(self, live: str, undone: str = "") -> ReceivedFile:
        """Return what the store has of a live file, but for the last batch if `undone` is its commit id; raises OSError, `Damaged`."""
        with self.store.read_transaction():
            batch = self.store.read_batch()
            row = self.store.find_file(live)
            segments = self.store.list_segments_of(live)
            last_day = self.store.read_last_day()
        assert batch is not None, "something was received"
        is_undone = bool(undone) and undone == batch.commit_id
        following = row.number if row else 1
        # a batch that is not stored yet, and may never be, renames files only when all that is stored is in them
        closed = [one for one in segments if one.batch <= batch.number or one.path != live]
        # a segment that has its own name still is the newest of them
        numbers = {one.path: one.number if one.path != live else following for one in closed}
        closed.sort(key=lambda one: numbers[one.path])
        parts = [Part(self._path_of(one, batch.number), self._length(one)) for one in closed]
        if row and live not in numbers:
            is_shorter = is_undone and row.batch == batch.number
            length = row.length_before if is_shorter else row.length
            parts.append(Part(live, length, is_live=True))
        oldest = min((n for path, n in numbers.items() if path != live), default=following)
        is_pruned = oldest > 1 or (not parts and "" < self.layout.parse(live).day < last_day)
        return ReceivedFile(batch.first if is_undone else batch.until, tuple(parts), is_pruned)

    def _path_of(self, segment: SegmentRow, stored: int) -> str:
        """Return where a segment is: under its own name, or, of a batch behind the one that is stored, perhaps not yet."""
        if segment.batch <= stored or self._is_there(segment.path):
            return segment.path
        return segment.live

    def _is_there(self, path: str) -> bool:
        with closing(Folders(self.output)) as folders:
            return folders.find(path) is not None

    def _length(self, segment: SegmentRow) -> int:
        if segment.length is not None:
            return segment.length
        return sum(map(len, self.content(Part(segment.path, 0))))

    def content(self, part: Part, skip: int = 0) -> Iterator[bytes]:
        """Yield the lines of a part but the first `skip` bytes, decompressed; of a live file what the store has, of one that is gone nothing."""
        left = part.length if part.is_live else None
        with (
            suppress(FileNotFoundError),
            open_parent(self.output, part.path) as at,
            _open(*at) as file,
        ):
            while piece := file.read(READ if left is None else min(READ, left)):
                left = None if left is None else left - len(piece)
                kept = piece[skip:]
                skip -= len(piece) - len(kept)
                if kept:
                    yield kept


@contextmanager
def _open(folder: Folder, name: str) -> Iterator[IO[bytes]]:
    """Open a file, or the compressed form that has taken its place; raises OSError."""
    suffix = ""
    try:
        descriptor = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        if (suffix := find_compressed(folder, name)) == "":
            raise
        descriptor = folder.open(name + suffix, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as raw:
        if not suffix:
            yield raw
        elif suffix == ".gz":
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
        else:
            unpacker = zstandard.ZstdDecompressor()
            yield unpacker.stream_reader(raw, read_across_frames=True, closefd=False)
