"""Closed segments after their commit: compressed, and the oldest removed. Off the hot path, and never a live file.

The stores say which segments there are, and which of them an undo may still need: no folder is walked. Age counts from
the newest line that was received, and never from later than now: this machine's clock alone may be years ahead at a boot.
A segment is compressed whole and on disk, or left as it was: killed at any moment, the next look finishes it.
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
from receiver.storage.rows import SegmentRow
from receiver.storage.store import Store

_PIECE = 1024 * 1024


class _LeftOff(Exception):
    """Compressing was stopped, or the segment has grown meanwhile."""


def compress_segment(folder: Folder, plain: str, method: str, stopped: Callable[[], bool]) -> str:
    """Put the compressed form in the place of a segment, with its mode, owner and time; return its suffix, empty for none.

    One caller at a time. What is compressed already, in whatever way, stays so. Leaves off soon after `stopped()`; raises OSError.
    A file of a day may have got lines since it was compressed: it stays beside its compressed form, which has another time.
    """
    suffix = find_compressed(folder, plain)
    if (found := folder.find(plain)) is None:
        return suffix  # whoever compressed it died before that was stored
    with suppress(FileNotFoundError):
        folder.remove(_half(plain))  # of a process that died over it
    if not suffix and method in SUFFIXES and _written(folder, plain, SUFFIXES[method], stopped):
        suffix = SUFFIXES[method]
    form = folder.find(plain + suffix)
    if not suffix or form is None or form.st_mtime_ns != found.st_mtime_ns:
        return ""
    folder.remove(plain)
    return suffix


def find_compressed(folder: Folder, plain: str) -> str:
    """Return the suffix of the compressed form of a segment, empty where there is none; raises OSError."""
    return next((suffix for suffix in SUFFIXES.values() if folder.find(plain + suffix)), "")


def _written(folder: Folder, plain: str, suffix: str, stopped: Callable[[], bool]) -> bool:
    """Write the compressed form; False where that was broken off, or the segment has grown meanwhile."""
    try:
        with (
            os.fdopen(folder.open(plain, os.O_RDONLY), "rb") as source,
            replace_file(folder, plain + suffix, _half(plain), 0o600) as raw,
        ):
            _pack(source, raw, suffix, stopped)
            fault("compressed")
    except _LeftOff:
        return False
    fault("packed")
    return True


def _pack(source: IO[bytes], raw: IO[bytes], suffix: str, stopped: Callable[[], bool]) -> None:
    """Write the compressed form of a file, and give it owner, mode and time of the file.

    Raises `_LeftOff`, OSError.
    """
    with _writer(raw, suffix) as packed:
        while not stopped() and (piece := source.read(_PIECE)):
            packed.write(piece)
    raw.flush()
    like = os.fstat(source.fileno())
    if like.st_size != source.tell():
        raise _LeftOff
    with suppress(PermissionError):  # that's fine: only root may give a file away
        os.fchown(raw.fileno(), like.st_uid, like.st_gid)
    os.fchmod(raw.fileno(), like.st_mode & 0o777)
    os.utime(raw.fileno(), ns=(like.st_mtime_ns, like.st_mtime_ns))


def _half(plain: str) -> str:
    return f".{plain}.new"


def _writer(raw: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)
    return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)


_MODEST = 15  # steps of niceness: receiving goes first wherever there are few cores
_LAST = 2**62  # behind the numbers of a day's segments

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept; 0 is no limit.

    `number` segments per live file, none whose last line is `age` nanoseconds older than the newest of all, `size` bytes in all.
    """

    number: int = 0
    age: int = 0
    size: int = 0


def choose_surplus(segments: Iterable[SegmentRow], limits: Limits, now: int) -> list[SegmentRow]:
    """Return what is to be removed, no more than the limits ask; of one live file in order.

    First go the segments of a live file beyond its number, and of the rest those that are too old;
    of what is left then the oldest, until that is no larger than it may be. `now` is what age
    counts from, in nanoseconds since the epoch: no later than the newest line that anybody has
    seen. A segment counts as young as the youngest before it, so that a file never loses a piece
    out of its middle.
    """
    gone: list[SegmentRow] = []
    kept: list[tuple[int, SegmentRow]] = []
    ordered = sorted(segments, key=lambda segment: (segment.live, segment.day, segment.number))
    for _, group in groupby(ordered, key=lambda segment: segment.live):
        of_one = list(group)
        surplus = max(0, len(of_one) - limits.number) if limits.number else 0
        moments = accumulate((segment.last_line for segment in of_one[surplus:]), max)
        aged = list(zip(moments, of_one[surplus:], strict=True))
        old = sum(0 < limits.age < now - moment for moment, _ in aged)
        gone += of_one[: surplus + old]
        kept += aged[old:]
    kept.sort(key=lambda item: item[0])  # stable: of one live file the lower number stays first
    left = sum(segment.size for _, segment in kept)
    for _, segment in kept:
        if not 0 < limits.size < left:
            break
        gone.append(segment)
        left -= segment.size
    return gone


@dataclass(frozen=True, slots=True)
class SegmentPolicy:
    """What is wanted: `compress` is zstd, gzip or none; `limits` say which closed segments stay.

    Where the layout has a file a day, those of days that are over are closed segments, too.
    """

    output: Path
    state: Path
    compress: str
    limits: Limits = Limits()
    layout: Layout = Layout()  # noqa: RUF009 - a frozen value


@dataclass(slots=True)
class SegmentCleaner:
    """Looks after the closed segments of one output folder; of several receivers one does so at a time.

    `clock` gives nanoseconds since the epoch.
    """

    order: SegmentPolicy
    clock: Callable[[], int]
    _told: str | None = None
    _failed: str | None = None

    def clean(self, stopped: Callable[[], bool]) -> None:
        """Compress the committed segments, and remove those that are not to be kept.

        An error is logged once and left for the next look; lines are never at stake, since a segment goes only when its
        compressed form is on disk.
        """
        self._failed = None
        with (
            suppress(Locked),  # that's fine: another receiver of these folders does it
            self._noted(),
            exclusive_lock(self.order.state / "retention.lock", 0.0),
        ):
            paths = sorted(self.order.state.glob("p*.db"))
            for path in paths:
                with self._noted(), Store(path) as store:
                    for segment in store.list_segments_to_compress():
                        if not stopped():
                            self._compress(store, segment, stopped)
            if self.order.limits != Limits() and not stopped():
                self._prune(paths)
        if self._failed and self._failed != self._told:
            logger.warning("closed files are left as they are for now, %s", self._failed)
        self._told = self._failed

    def _compress(self, store: Store, segment: SegmentRow, stopped: Callable[[], bool]) -> None:
        with self._noted(), open_parent(self.order.output, segment.path) as (folder, name):
            suffix = compress_segment(folder, name, self.order.compress, stopped)
            if suffix and (form := folder.find(name + suffix)):
                store.note_compressed(segment.path, suffix, form.st_size)

    def _prune(self, paths: list[Path]) -> None:
        limits, now, newest = self.order.limits, self.clock(), 0
        owners: dict[str, Path] = {}
        segments: list[SegmentRow] = []
        for path in paths:
            with self._noted(), Store(path) as store:
                newest = max(newest, store.read_newest_line())
                present = self._present(store)
                owners.update(dict.fromkeys((row.path for row in present), path))
                segments += map(self._of_all_days, present)
        gone = choose_surplus(segments, limits, min(now, newest) if newest else now)
        for path in sorted({owners[segment.path] for segment in gone}):
            with self._noted(), Store(path) as store:
                self._remove(store, [one for one in gone if owners[one.path] == path])
        if gone:
            logger.info(
                "removed %s not to be kept (%s), the last of them %s",
                format_count(len(gone), "closed file"),
                format_size(sum(segment.size for segment in gone)),
                gone[-1].path,
            )

    def _of_all_days(self, row: SegmentRow) -> SegmentRow:
        """Return a segment as one of the file of all days; a day's own file comes behind its numbered segments."""
        number = row.number if row.path != row.live else _LAST
        return row._replace(live=self.order.layout.parse(row.live).series, number=number)

    def _present(self, store: Store) -> list[SegmentRow]:
        """Return the committed segments that are there; those that other hands have removed are forgotten."""
        batch = store.read_batch()
        if batch is None or self.order.output.stat().st_ino != batch.output_inode:
            return []  # the disk of the output folder is not mounted
        present: list[SegmentRow] = []
        gone: list[str] = []
        with closing(Folders(self.order.output)) as folders:
            for row in store.list_stored_segments():
                with suppress(OSError):  # that's fine: it is looked at again
                    if found := folders.find(row.path + row.compressed):
                        present.append(row._replace(size=found.st_size))
                    else:
                        gone.append(row.path)
        if gone:
            store.forget_segments(gone)
        return present

    def _remove(self, store: Store, segments: list[SegmentRow]) -> None:
        for segment in segments:
            with (
                suppress(FileNotFoundError),  # that's fine: a person was quicker
                open_parent(self.order.output, segment.path + segment.compressed) as (folder, name),
            ):
                folder.remove(name)
            fault("pruned")
            remove_empty_folders(self.order.output, segment.path.rpartition("/")[0])
        store.forget_segments([segment.path for segment in segments])

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Have what goes wrong inside be told at the end."""
        try:
            yield
        except Damaged as error:
            self._failed = str(error)
        except OSError as error:
            self._failed = f"{error.filename or self.order.output}: {error.strerror or error}"


def lower_priority() -> None:
    """Have the calling thread step back behind everybody else's work; for a thread that does nothing but tidy."""
    # that's fine: a unit of systemd may forbid it, and it tidies at everybody's rank
    with suppress(PermissionError):
        os.nice(_MODEST)
