"""Compress segments, and delete them by number, age and size.

A segment here is a closed file: `web01.log.000001`, or the file of a past day. (Options, pages and
messages say "closed file"; the spool's segments are others.) The stores list the segments; no
folder is searched. Live files are never deleted, and neither is the file of the latest day, which
may be closed by a clock that is ahead: lines still come to it, so it is not compressed either.

| limit of a receiver's files | default | checked by |
|---|---|---|
| `keep`, `keep_age`, `keep_bytes` | no limit | `SegmentCleaner`: each minute, and on a rotation |
| 1 GiB, 100,000 files of `.quarantine` | fixed | `quarantine.py`, when it writes a file |
| reports of gaps (`.gaps.p<N>.jsonl`) | no limit | nobody: they are never deleted |

One receiver of an output folder at a time does this: it locks `segments.lock`. A segment is
replaced by its compressed form only once that is on disk: if the process is killed at any moment,
the next call finishes the work. `broker/retention/__init__.py` lists the limits of the broker's
streams.
"""

import gzip
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import IO, Any

import zstandard

from nats_logship.app.faults import fault
from nats_logship.app.files import Folder, replace_file
from nats_logship.app.locks import Locked, exclusive_lock
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size
from receiver.storage.damage import Damaged
from receiver.storage.folders import Folders, open_parent, remove_empty_folders
from receiver.storage.layout import Layout
from receiver.storage.rotation import SUFFIXES
from receiver.storage.rows import SegmentRow, inode_of
from receiver.storage.store import Store

_CHUNK = 1024 * 1024  # bytes that are compressed at a time
_NICENESS = 15  # of the thread that compresses: receiving goes first
_LAST = 2**62  # above all numbers of segments

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many segments are kept; 0 means no limit."""

    number: int = 0  # segments of each live file, over all its days
    # nanoseconds from a segment's last line to now, or to the newest line if that is earlier
    age: int = 0
    size: int = 0  # bytes of all segments together, as they are on disk


@dataclass(frozen=True, slots=True)
class SegmentPolicy:
    """What to do with segments; `compress` is zstd, gzip or none.

    If the layout has a file for each day, the files of past days are segments, too.
    """

    output: Path
    state: Path
    compress: str
    limits: Limits = Limits()
    layout: Layout = Layout()  # noqa: RUF009 - a frozen value


def choose_excess(segments: Iterable[SegmentRow], limits: Limits, now: int) -> list[SegmentRow]:
    """Return the segments to delete: no more than the limits require.

    Segments of one live file come in order. First come the oldest of each live file beyond
    `limits.number`, and those older than `limits.age` at `now` (nanoseconds since the epoch); then
    the oldest of all, until the rest fits `limits.size`. A segment counts as no older than those
    before it, so that deletion starts at the oldest of its file.
    """
    excess: list[SegmentRow] = []
    kept: list[tuple[int, SegmentRow]] = []
    ordered = sorted(segments, key=lambda segment: (segment.live, segment.day, segment.number))
    for _, group in groupby(ordered, key=lambda segment: segment.live):
        of_one = list(group)
        more = max(0, len(of_one) - limits.number) if limits.number else 0
        moments = accumulate((segment.last_line for segment in of_one[more:]), max)
        aged = list(zip(moments, of_one[more:], strict=True))
        old = sum(0 < limits.age < now - moment for moment, _ in aged)
        excess += of_one[: more + old]
        kept += aged[old:]
    kept.sort(key=lambda item: item[0])  # stable: the lower number of a live file stays first
    remaining = sum(segment.size for _, segment in kept)
    for _, segment in kept:
        if not 0 < limits.size < remaining:
            break
        excess.append(segment)
        remaining -= segment.size
    return excess


@dataclass(slots=True)
class SegmentCleaner:
    """Compresses and deletes the segments of one output folder.

    `clock` returns nanoseconds since the epoch.
    """

    policy: SegmentPolicy
    clock: Callable[[], int]
    _reported: str | None = None
    _failure: str | None = None

    def clean(self, stopped: Callable[[], bool]) -> None:
        """Compress all stored segments, and delete those beyond the limits.

        Ends early soon after `stopped()`. Logs an error once, and leaves the segment for the next
        call.
        """
        self._failure = None
        with (
            suppress(Locked),  # that's fine: another receiver of this folder does it
            self._note_errors(),
            exclusive_lock(self.policy.state / "segments.lock", 0.0),
        ):
            paths = sorted(self.policy.state.glob("p*.db"))
            for path in paths:
                with self._note_errors(), Store(path) as store:
                    for segment in store.list_segments_to_compress():
                        if not stopped():
                            self._compress(store, segment, stopped)
            if self.policy.limits != Limits() and not stopped():
                self._delete_excess(paths)
        if self._failure and self._failure != self._reported:
            logger.warning("closed files cannot be compressed or deleted: %s", self._failure)
        self._reported = self._failure

    def _compress(self, store: Store, segment: SegmentRow, stopped: Callable[[], bool]) -> None:
        with self._note_errors(), open_parent(self.policy.output, segment.path) as (folder, name):
            suffix = compress_segment(folder, name, self.policy.compress, stopped)
            if suffix and (form := folder.find(name + suffix)):
                store.note_compressed(segment.path, suffix, form.st_size)

    def _delete_excess(self, paths: list[Path]) -> None:
        limits, now, newest = self.policy.limits, self.clock(), 0
        owners: dict[str, Path] = {}
        segments: list[SegmentRow] = []
        for path in paths:
            with self._note_errors(), Store(path) as store:
                newest = max(newest, store.read_newest_line())
                present = self._list_present(store)
                owners.update(dict.fromkeys((row.path for row in present), path))
                segments += map(self._join_days, present)
        # after a boot the clock may be years ahead: then measure age from the newest line
        excess = choose_excess(segments, limits, min(now, newest) if newest else now)
        for path in sorted({owners[segment.path] for segment in excess}):
            with self._note_errors(), Store(path) as store:
                self._delete(store, [one for one in excess if owners[one.path] == path])
        if excess:
            logger.info(
                "deleted %s beyond the limits (%s), the last one %s",
                format_count(len(excess), "closed file"),
                format_size(sum(segment.size for segment in excess)),
                excess[-1].path,
            )

    def _join_days(self, row: SegmentRow) -> SegmentRow:
        """Return the segment as part of its series: with the path of the live file without the day.

        The file of a past day comes after the numbered segments of that day.
        """
        number = row.number if row.path != row.live else _LAST
        return row._replace(live=self.policy.layout.parse(row.live).series, number=number)

    def _list_present(self, store: Store) -> list[SegmentRow]:
        """Return the complete segments that exist; forget those that somebody has deleted."""
        batch = store.read_batch()
        if batch is None or inode_of(self.policy.output.stat()) != batch.output_inode:
            return []  # the disk of the output folder is not mounted
        present: list[SegmentRow] = []
        gone: list[str] = []
        with closing(Folders(self.policy.output)) as folders:
            for row in store.list_complete_segments():
                with suppress(OSError):  # that's fine: the next call tries again
                    if found := folders.find(row.path + row.compressed):
                        present.append(row._replace(size=found.st_size))
                    else:
                        gone.append(row.path)
        if gone:
            store.forget_segments(gone)
        return present

    def _delete(self, store: Store, segments: list[SegmentRow]) -> None:
        for segment in segments:
            path = segment.path + segment.compressed
            with (
                suppress(FileNotFoundError),  # that's fine: somebody has deleted it
                open_parent(self.policy.output, path) as (folder, name),
            ):
                folder.remove(name)
            fault("deleted")
            remove_empty_folders(self.policy.output, segment.path.rpartition("/")[0])
        store.forget_segments([segment.path for segment in segments])

    @contextmanager
    def _note_errors(self) -> Iterator[None]:
        """Keep an error of the block for the log, and go on after the block."""
        try:
            yield
        except Damaged as error:
            self._failure = str(error)
        except OSError as error:
            self._failure = f"{error.filename or self.policy.output}: {error.strerror or error}"


class _Abandoned(Exception):
    """Compression was stopped, or the segment has grown meanwhile."""


def compress_segment(folder: Folder, plain: str, method: str, stopped: Callable[[], bool]) -> str:
    """Replace a segment by its compressed form, with the same mode, owner and time.

    Returns the suffix of the compressed form; empty if the segment is not compressed yet. An
    existing .gz or .zst is kept, whatever `method` is. One caller at a time; ends early soon after
    `stopped()`. Raises OSError.
    """
    suffix = find_compressed(folder, plain)
    if (found := folder.find(plain)) is None:
        return suffix  # a killed process has compressed it, and did not note that in the store
    with suppress(FileNotFoundError):
        folder.remove(_unfinished(plain))  # of a killed process
    if not suffix and method in SUFFIXES and _write(folder, plain, SUFFIXES[method], stopped):
        suffix = SUFFIXES[method]
    form = folder.find(plain + suffix)
    if not suffix or form is None or form.st_mtime_ns != found.st_mtime_ns:
        return ""  # the file of a past day has got more lines meanwhile: it stays beside the form
    folder.remove(plain)
    return suffix


def find_compressed(folder: Folder, plain: str) -> str:
    """Return the suffix of a segment's compressed form; empty if there is none. Raises OSError."""
    return next((suffix for suffix in SUFFIXES.values() if folder.find(plain + suffix)), "")


def _write(folder: Folder, plain: str, suffix: str, stopped: Callable[[], bool]) -> bool:
    """Write the compressed form; return False if it was abandoned."""
    try:
        with (
            os.fdopen(folder.open(plain, os.O_RDONLY), "rb") as source,
            replace_file(folder, plain + suffix, _unfinished(plain), 0o600) as target,
        ):
            _copy_compressed(source, target, suffix, stopped)
            fault("compressing")
    except _Abandoned:
        return False
    fault("compressed")
    return True


def _copy_compressed(
    source: IO[bytes], target: IO[bytes], suffix: str, stopped: Callable[[], bool]
) -> None:
    """Write the compressed form of a file, with its owner, mode and time.

    Raises `_Abandoned`, OSError.
    """
    with _make_compressor(target, suffix) as compressor:
        while not stopped() and (chunk := source.read(_CHUNK)):
            compressor.write(chunk)
    target.flush()
    found = os.fstat(source.fileno())
    if found.st_size != source.tell():
        raise _Abandoned
    with suppress(PermissionError):  # that's fine: only root may change an owner
        os.fchown(target.fileno(), found.st_uid, found.st_gid)
    os.fchmod(target.fileno(), found.st_mode & 0o777)
    os.utime(target.fileno(), ns=(found.st_mtime_ns, found.st_mtime_ns))


def _unfinished(plain: str) -> str:
    return f".{plain}.new"


def _make_compressor(target: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=target, mode="wb", mtime=0)
    return zstandard.ZstdCompressor(level=3).stream_writer(target, closefd=False)


def lower_priority() -> None:
    """Lower the priority of the calling thread."""
    # that's fine: a unit of systemd may forbid it
    with suppress(PermissionError):
        os.nice(_NICENESS)
