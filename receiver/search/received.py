"""Which received files there are, by the stores of their partitions, and how far they go.

A store is read in one transaction: the lengths of the live files, the closed files, and the batch
that wrote them last. What comes after that batch is in the stream.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import IO, NamedTuple

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.selection import LineSelection
from receiver.storage.damage import Damaged
from receiver.storage.folders import Folders
from receiver.storage.layout import DEFAULT, Layout
from receiver.storage.rotation import name_segment
from receiver.storage.rows import FileRow, SegmentRow, StoredBatch, inode_of
from receiver.storage.store import Store
from receiver.verify.files import open_received


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """A closed file, or the first `length` bytes of a live one, with lines of a host.

    Its lines were stored from `begins` to `ends`, in nanoseconds since the epoch.
    """

    host: str
    source: str
    path: str
    size: int
    begins: int
    ends: int
    length: int | None = None
    inode: int = 0
    otherwise: str = ""
    """Where it may be instead: it is renamed when it is closed."""
    is_copy: bool = False
    """Whether it is a live file in a copy of the folders, where it has another inode."""


class _Live(NamedTuple):
    row: FileRow
    segments: list[SegmentRow]
    stored: int  # the number of the batch that was stored last
    is_copy: bool


@dataclass(slots=True)
class ReceivedFiles:
    """The files of a receiver, and the batch of each partition that was stored last.

    `zone` is that of times in lines which name none; None is any zone.
    """

    output: Path
    zone: tzinfo | None = None
    parts: list[ReceivedPart] = field(default_factory=list)
    batches: dict[int, StoredBatch] = field(default_factory=dict)
    has_sources: bool = False
    """Whether each source file has files of its own."""

    @classmethod
    def read(cls, output: Path, state: Path, zone: tzinfo | None) -> "ReceivedFiles":
        """Read all stores; raises `ConfigurationError` if there are none, `OperatorError`."""
        found = cls(output, zone)
        live: dict[str, _Live] = {}
        try:
            for path in sorted(state.glob("p*.db")):
                with Store(path) as store:
                    found._read(int(path.stem[1:]), store, live)
        except Damaged as error:
            raise OperatorError(str(error)) from None
        except OSError as error:
            raise OperatorError(f"{error.filename or state}: {error.strerror or error}") from None
        if not found.batches:
            raise ConfigurationError(
                f"{state} has no store of a receiver: are --output and --state-dir right?"
            )
        for one in live.values():
            found.parts += _list_parts(*one)
        return found

    def _read(self, partition: int, store: Store, live: dict[str, _Live]) -> None:
        with store.read_transaction():
            if (batch := store.read_batch()) is None:
                return
            rows = [row for row in store.list_files_and_left() if row.host]
            segments: dict[str, list[SegmentRow]] = {}
            for one in [*store.list_stored_segments(), *store.list_segments_to_rename()]:
                segments.setdefault(one.live, []).append(one)
        self.batches[partition] = batch
        self.has_sources |= Layout(batch.template or DEFAULT).has_file
        is_copy = batch.store_inode not in {0, store.inode} or (
            batch.output_inode not in {0, inode_of(self.output.stat())}
        )
        for row in rows:
            if row.path not in live or not row.left_in:
                closed = segments.get(row.path, [])
                live[row.path] = _Live(row, closed, batch.number, is_copy)

    def choose(
        self, selection: LineSelection, since: int | None, until: int | None
    ) -> list[ReceivedPart]:
        """Return the parts that may have lines which are wanted, by host and in order."""
        return [
            part
            for part in sorted(self.parts, key=lambda one: (one.host, one.source, one.ends))
            if selection.wants_host(part.host)
            and (not self.has_sources or selection.wants_file(part.source))
            and (since is None or part.ends >= since)
            and (until is None or part.begins < until)
        ]

    @contextmanager
    def open(self, part: ReceivedPart) -> Iterator[IO[bytes]]:
        """Open a part; raises OSError, FileNotFoundError if it was deleted or replaced."""
        paths = [path for path in (part.path, part.otherwise) if path]
        if part.is_copy:
            paths.reverse()  # if it was closed before it was copied, the live file is the next one
        with closing(Folders(self.output)) as folders, ExitStack() as stack:
            for path in paths:
                with suppress(FileNotFoundError):
                    found = stack.enter_context(folders.open_parent(path))
                    file = stack.enter_context(open_received(*found))
                    if not part.inode or path != part.path or _inode(file) == part.inode:
                        break
            else:
                path = str(self.output / part.path)
                raise FileNotFoundError(errno.ENOENT, "was deleted or replaced meanwhile", path)
            yield file


def _list_parts(
    row: FileRow, segments: list[SegmentRow], stored: int, is_copy: bool
) -> Iterator[ReceivedPart]:
    """Yield the parts of a live file in their order; the file of a past day is a segment.

    Segments of batches after `stored` are announced: they may not be renamed yet.
    """
    ends = 0
    for one in sorted(segments, key=lambda one: (one.path == one.live, one.number)):
        yield ReceivedPart(
            host=row.host,
            source=row.source,
            path=one.path,
            size=one.size,
            begins=ends,
            ends=one.last_line,
            otherwise=one.live if one.batch > stored else "",
        )
        ends = max(ends, one.last_line)
    if row.length and row.inode and all(one.path != row.path for one in segments):
        yield ReceivedPart(
            host=row.host,
            source=row.source,
            path=row.path,
            size=row.length,
            begins=ends,
            ends=row.last_line,
            length=row.length,
            inode=0 if is_copy else row.inode,
            otherwise=name_segment(row.path, row.number),
            is_copy=is_copy,
        )


def _inode(file: IO[bytes]) -> int:
    return inode_of(os.fstat(file.fileno()))
