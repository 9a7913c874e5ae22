"""Closed segments after their commit: compressed, and the oldest removed. Off the hot path, and never a live file.

The stores say which segments there are, and which of them an undo may still need: no folder is walked. Age counts from
the newest line that was received, and never from later than now: this machine's clock alone may be years ahead at a boot.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.app.faults import fault
from broker.app.sizes import format_size
from receiver.storage.folders import remove_empty, within
from receiver.storage.keeping import Limits, Segment, superfluous
from receiver.storage.layout import Layout
from receiver.storage.packing import SUFFIXES, clear_away, pack
from receiver.storage.position import Damaged
from receiver.storage.store import SegmentRow, Store

__all__ = ["Order", "Retention", "be_modest"]

_MODEST = (
    15  # of 19 steps of niceness: receiving goes first wherever there are fewer cores than work
)
_LAST = 2**62  # behind the numbers of a day's segments

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted: `compress` is zstd, gzip or none; `limits` say which closed segments stay.

    Where the layout has a file a day, those of days that are over are closed segments, too.
    """

    output: Path
    state: Path
    compress: str
    limits: Limits = Limits()  # noqa: RUF009 - a frozen value
    layout: Layout = Layout()  # noqa: RUF009 - a frozen value


class Retention:
    """Looks after the closed segments of one output folder; used by one thread at a time."""

    def __init__(self, order: Order, clock: Callable[[], int]) -> None:
        """Look at nothing yet; `clock` gives nanoseconds since the epoch."""
        self.order = order
        self._clock = clock
        self._told: str | None = None
        self._is_first = True
        self.removed = 0

    def tidy(self, stopped: Callable[[], bool]) -> None:
        """Remove the committed segments that are not to be kept, and compress the others.

        An error is logged once and left for the next look; lines are never at stake, since a segment goes only when its
        compressed form is on disk.
        """
        failed: list[OSError] = []
        for path in sorted(self.order.state.glob("p*.db")):
            if stopped():
                return
            with _noted(failed), Store(path) as store:
                self._compress(store, stopped)
        if self.order.limits and not stopped():
            with _noted(failed):
                self._prune(failed)
        self._is_first = False
        if failed:
            self._tell(failed[-1])
        else:
            self._told = None

    def _compress(self, store: Store, stopped: Callable[[], bool]) -> None:
        failed = None
        for segment in store.segments("compressed = '' AND batch <= ?", store.settled()):
            if stopped():
                return
            try:
                self._compress_one(store, segment, stopped)
            except OSError as error:
                failed = error
        if failed:
            raise failed

    def _compress_one(self, store: Store, segment: SegmentRow, stopped: Callable[[], bool]) -> None:
        with within(self.order.output, segment.path) as path:
            if self._is_first:
                clear_away(path.parent, path.name)
            pack(path, self.order.compress, stopped)
            packed = next(filter(None, (_found(path, end) for end in SUFFIXES.values())), None)
        if packed:
            suffix, size = packed
            with store.transaction():
                store.change(
                    "UPDATE segments SET compressed = ?, size = ? WHERE path = ?",
                    *(suffix, size, segment.path),
                )

    def _prune(self, failed: list[OSError]) -> None:
        limits, now = self.order.limits, self._clock()
        owners: dict[str, Path] = {}
        segments: list[Segment] = []
        newest = 0
        for path in sorted(self.order.state.glob("p*.db")):
            with _noted(failed), Store(path) as store:
                found = [self._of(row) for row in self._there(store)]
                newest = max(newest, _newest(store))
                segments += found
                owners.update((segment.name, path) for segment in found)
        gone = superfluous(segments, limits, min(now, newest) if newest else now)
        for segment in gone:
            self._remove(segment, owners[segment.name])
        if gone:
            logger.info(
                "removed %d closed files that are not to be kept (%s), the last of them %s",
                len(gone),
                format_size(sum(segment.size for segment in gone)),
                gone[-1].name,
            )

    def _there(self, store: Store) -> list[SegmentRow]:
        """Return the committed segments that are there; those that other hands have taken away are forgotten."""
        there: list[SegmentRow] = []
        gone: list[SegmentRow] = []
        for row in store.segments("batch <= ?", store.settled()):
            try:
                with within(self.order.output, row.path + row.compressed) as path:
                    is_there = not path.is_symlink() and path.is_file()
            except FileNotFoundError:
                is_there = False
            except OSError:
                continue  # that's fine: it is looked at again
            (there if is_there else gone).append(row)
        if gone and self._is_mounted(store):
            with store.transaction():
                _forget(store, [row.path for row in gone])
        return there

    def _is_mounted(self, store: Store) -> bool:
        batch = store.batch()
        try:
            return batch is not None and self.order.output.stat().st_ino == batch.output_inode
        except FileNotFoundError:
            return False

    def _of(self, row: SegmentRow) -> Segment:
        layout = self.order.layout
        number = row.number if row.path != row.live else _LAST
        return Segment(
            *(layout.of_all_days(row.live), number, row.path + row.compressed),
            size=row.size,
            moment=row.last_line,
            day=row.day,
        )

    def _remove(self, segment: Segment, path: Path) -> None:
        output = self.order.output
        # that's fine: a person, or another receiver
        with suppress(FileNotFoundError), within(output, segment.name) as file:
            file.unlink()
        fault("pruned")
        remove_empty(output, segment.name.rpartition("/")[0])
        with Store(path) as store, store.transaction():
            _forget(
                store, [segment.name, *(segment.name.removesuffix(e) for e in SUFFIXES.values())]
            )
        self.removed += 1
        logger.debug("removed %s", segment.name)

    def _tell(self, error: OSError) -> None:
        words = f"{error.filename or self.order.output}: {error.strerror or error}"
        if self._told != error.strerror:
            logger.warning("closed files are left as they are for now, %s", words)
        self._told = error.strerror


def be_modest() -> None:
    """Have the calling thread step back behind everybody else's work; for a thread that does nothing but tidy."""
    with suppress(
        PermissionError
    ):  # a sandbox that forbids it; that's fine, it tidies at everybody's rank
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _MODEST)


@contextmanager
def _noted(failed: list[OSError]) -> Iterator[None]:
    """Have what goes wrong inside be told at the end."""
    try:
        yield
    except Damaged as error:
        failed.append(OSError(errno.EIO, str(error)))
    except OSError as error:
        failed.append(error)


def _found(path: Path, suffix: str) -> tuple[str, int] | None:
    """Return the suffix and the size of a compressed form that is there alone."""
    packed = path.with_name(path.name + suffix)
    if path.exists() or packed.is_symlink() or not packed.is_file():
        return None
    return suffix, packed.lstat().st_size


def _newest(store: Store) -> int:
    query = (
        "SELECT max(coalesce((SELECT max(last_line) FROM files), 0), "
        "coalesce((SELECT max(last_line) FROM segments), 0))"
    )
    return int(str(store.rows(query)[0][0]))


def _forget(store: Store, paths: list[str]) -> None:
    """Forget closed segments, and the files of days that are over; within a transaction."""
    store.change_all("DELETE FROM segments WHERE path = ?", ((path,) for path in paths))
    store.change_all(
        "DELETE FROM files WHERE path = ? AND day != '' AND day < (SELECT max(day) FROM files)",
        ((path,) for path in paths),
    )
