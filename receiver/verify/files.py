"""The files of a partition as its store lists them, and the lines in them. Changes nothing."""

import gzip
import os
from collections.abc import Iterable, Iterator
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

CHUNK = 1024 * 1024
"""Bytes that are read at a time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A live file or a closed segment, with `length` bytes of lines."""

    path: str
    length: int
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A live file with its closed segments, the oldest first: all messages before `until`.

    If `is_cleaned`, older segments were deleted beyond the limits.
    """

    until: int
    parts: tuple[Part, ...]
    is_cleaned: bool

    def list_newest(self, size: int) -> Iterator[tuple[Part, int]]:
        """Yield the parts with the newest `size` bytes, and how many bytes of each are older."""
        skipped = max(0, sum(part.length for part in self.parts) - size)
        for part in self.parts:
            if skipped < part.length:
                yield part, skipped
            skipped = max(0, skipped - part.length)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one partition: the rows in `store`, the bytes in `output`."""

    store: Store
    output: Path
    layout: Layout

    def find(self, live: str, undone: str = "") -> ReceivedFile:
        """Return a live file and its segments as stored; raises OSError, `Damaged`.

        Without the last batch if its commit id is `undone`.
        """
        with self.store.read_transaction():
            batch = self.store.read_batch()
            row = self.store.find_file(live)
            segments = self.store.list_segments_of(live)
            last_day = self.store.read_last_day()
        assert batch is not None, "the store was opened with a batch"
        is_undone = bool(undone) and undone == batch.commit_id
        following = row.number if row else 1
        numbers = _number_segments(segments, following, batch.number)
        closed = sorted(
            (one for one in segments if one.path in numbers), key=lambda one: numbers[one.path]
        )
        parts = [Part(self._path_of(one, batch.number), self._length_of(one)) for one in closed]
        if row and live not in numbers:
            is_shorter = is_undone and row.batch == batch.number
            length = row.length_before if is_shorter else row.length
            parts.append(Part(live, length, is_live=True))
        oldest = min((n for path, n in numbers.items() if path != live), default=following)
        is_cleaned = oldest > 1 or (not parts and "" < self.layout.parse(live).day < last_day)
        return ReceivedFile(batch.first if is_undone else batch.until, tuple(parts), is_cleaned)

    def _path_of(self, segment: SegmentRow, stored: int) -> str:
        """Return where a segment is: a batch that is only announced may not have renamed it yet."""
        if segment.batch <= stored:
            return segment.path
        with closing(Folders(self.output)) as folders:
            return segment.path if folders.has_file(segment.path) else segment.live

    def _length_of(self, segment: SegmentRow) -> int:
        if segment.length is not None:
            return segment.length
        return sum(map(len, self.read(Part(segment.path, 0))))

    def read(self, part: Part, skip: int = 0) -> Iterator[bytes]:
        """Yield the lines of a part without the first `skip` bytes, decompressed.

        Yields only the stored lines of a live file, and nothing for a file that is gone.
        """
        left = part.length if part.is_live else None
        with (
            suppress(FileNotFoundError),
            open_parent(self.output, part.path) as found,
            open_received(*found) as file,
        ):
            while chunk := file.read(CHUNK if left is None else min(CHUNK, left)):
                left = None if left is None else left - len(chunk)
                kept = chunk[skip:]
                skip -= len(chunk) - len(kept)
                if kept:
                    yield kept


def _number_segments(segments: Iterable[SegmentRow], following: int, stored: int) -> dict[str, int]:
    """Return the segments with lines of stored batches, by path, with the numbers to sort them by.

    A batch that is only announced renames files whose lines are all stored; but it may not have
    closed a file of a past day. Such a file is closed under its own name, and is the newest.
    """
    return {
        one.path: one.number if one.path != one.live else following
        for one in segments
        if one.batch <= stored or one.path != one.live
    }


@contextmanager
def open_received(folder: Folder, name: str) -> Iterator[IO[bytes]]:
    """Open a file, or its compressed form if only that exists; raises OSError."""
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
            decompressor = zstandard.ZstdDecompressor()
            yield decompressor.stream_reader(raw, read_across_frames=True, closefd=False)
