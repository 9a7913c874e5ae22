"""The output folder: appends blocks to live files, rotates between blocks, and takes back what was not committed.

The only room that writes output. Every name is opened relative to the folder and never through a symbolic link; every
touch of a file comes after its pre-image is in the journal, which the caller sees to.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from broker.app.faults import fault
from receiver.permissions import Permissions
from receiver.writing import rotation, undoing, writeback
from receiver.writing.calendar import Calendar
from receiver.writing.folders import Folders, give, most_open
from receiver.writing.journal import PreImage
from receiver.writing.known import Damaged, Known
from receiver.writing.lengths import Lengths
from receiver.writing.numbers import Numbers

__all__ = ["Damaged", "Output"]

_MOST_OPEN = 256  # descriptors that one task keeps; then all are closed
_MANY = 64  # files; one sync of the whole file system is cheaper than that many, though it takes others' bytes along
_LARGE = 1024 * 1024  # bytes
_MOST_PIECES = 1024  # IOV_MAX of Linux
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_NEVER = Calendar(timedelta())
_USUAL = Permissions()


class Output:
    """The output folder as one batch writes to it; used by one thread, under the partition's lock."""

    def __init__(
        self,
        root: Path,
        rotate_size: int,
        calendar: Calendar = _NEVER,
        lengths: Lengths | None = None,
        permissions: Permissions = _USUAL,
    ) -> None:
        """Open the folder; raises OSError. `rotate_size` is in bytes, 0 is never; `calendar` tells when time rotates.

        What somebody else did to files is found by `lengths` and told in `notices`.
        """
        self._root = root
        self._limit = rotate_size
        self.calendar = calendar
        self._lengths = lengths or Lengths(None)
        self._turned_out: set[str] = set()
        self._permissions = permissions
        self._folders = Folders(root, permissions)
        self._numbers = Numbers(self._folders)
        self._most_open = most_open(_MOST_OPEN)
        self._open: dict[str, int] = {}
        self._has_left = False  # files that were closed without a sync
        self._sizes: dict[str, int] = {}
        self._moments: dict[str, int] = {}
        self.closed: list[str] = []
        self.notices: list[str] = []

    def image(self, live: str) -> PreImage:
        """Return what a live file is now; raises OSError, also when it is no regular file."""
        found, number = self._folders.find(live), self._next_number(live)
        self._look_out(live, found, number)
        if found is None:
            self._sizes[live] = 0
            self._moments.pop(live, None)
            return PreImage(live, None, number)
        self._sizes[live] = found.st_size
        self._moments[live] = found.st_mtime_ns
        return PreImage(live, found.st_size, number, found.st_mtime_ns, found.st_ino)

    def _look_out(self, live: str, found: os.stat_result | None, number: int) -> None:
        """Let go of a file that is not there under its name any more, and tell what was done to it."""
        descriptor = self._open.get(live)
        if descriptor is not None and (
            found is None or not os.path.samestat(os.fstat(descriptor), found)
        ):
            os.close(self._open.pop(live))
        now = Known(found.st_ino, found.st_size, number) if found else None
        words = self._lengths.difference(live, now)
        if not words and now and not self._lengths.is_as_left(live, now):
            words = self._torn(live)
        if words:
            self.notices.append(words)
            self._turned_out.add(live)  # its last line may be half of one

    def _torn(self, live: str) -> str | None:
        """Look at a file that is not known as it is: after the death of a process nobody knows how it was left."""
        if self._folders.ends_in_line(live):
            return f"{live} ends within a line, of which nobody knows the rest; it is closed and a new one begins"
        return None

    def append(self, live: str, pieces: Sequence[bytes], moment: int) -> None:
        """Append blocks to a file whose image was taken, rotating between them; raises OSError.

        `moment` is when the last of them was stored, all in one period of rotation, in nanoseconds since the epoch.
        """
        self._turn(live, moment)
        begin, size = 0, self._sizes[live]
        for index, piece in enumerate(pieces):
            if rotation.is_due(size, len(piece), self._limit):
                self._write(live, pieces[begin:index])
                self.rotate(live)
                begin, size = index, 0
            size += len(piece)
        self._write(live, pieces[begin:])
        self._sizes[live] = size

    def _turn(self, live: str, moment: int) -> None:
        last = self._moments.get(live, moment)
        is_over = live in self._turned_out or last < self.calendar.period(moment).begin
        if self._sizes[live] and is_over:
            self.rotate(live)
        self._turned_out.discard(live)
        self._moments[live] = max(moment, last)

    def moment(self, live: str) -> int | None:
        """Return the moment of the last line of a live file; None when it has none, or is no file at all."""
        with suppress(OSError):
            found = self._folders.find(live)
            return found.st_mtime_ns if found and found.st_size else None
        return None

    def sync(self) -> None:
        """Bring everything that was appended, and the names, to disk."""
        if self._has_left or (len(self._open) > _MANY and self._folders.can_sync_all()):
            self._leave_all()
            self._folders.sync_all()
        else:
            self._settle_all()
            fault("files_synced")
            self._folders.sync()
        self._has_left = False
        self._lengths.keep()

    def _settle_all(self) -> None:
        for descriptor in self._open.values():
            writeback.begin(descriptor)
        for live, descriptor in self._open.items():
            self._finish(live, descriptor)

    def _leave_all(self) -> None:
        """Close all files without a sync of their own: one for all of them is due by the end of the batch."""
        self._has_left = True
        while self._open:
            self._finish_and_close(*self._open.popitem())

    def _finish(self, live: str, descriptor: int) -> None:
        """Bring a file to disk, unless one sync for all will; raises OSError also when nobody could ever read it."""
        found = os.fstat(descriptor)
        if not found.st_nlink:
            words = "was removed while lines came; they are written again"
            raise OSError(errno.ESTALE, words, str(self._root / live))
        moment, size, meant = self._moments[live], found.st_size, self._sizes.get(live, 0)
        try:
            # A file is as old as its last line, which rotation and --keep-age go by; after a downtime that is not now.
            os.utime(descriptor, ns=(moment, moment))
            if not self._has_left or found.st_dev != self._folders.device:
                os.fdatasync(descriptor)
        except OSError as error:
            error.filename = str(self._root / live)
            raise
        self._lengths.note(live, Known(found.st_ino, size, self._next_number(live)))
        if size < meant:
            self.notices.append(
                f"{live} was cut by somebody else while lines were written to it: it has {size} bytes of "
                f"{meant}, the others are missing in it"
            )

    def _finish_and_close(self, live: str, descriptor: int) -> None:
        try:
            self._finish(live, descriptor)
        finally:
            os.close(descriptor)

    def undo(self, images: Iterable[PreImage]) -> None:
        """Make files again what their images say; can be broken off and repeated. Raises OSError, `Damaged`."""
        self._close_all()
        undone = tuple(images)
        gone = undoing.undo(undone, self._folders, self._numbers)
        self.notices += gone.values()
        self._lengths.undo(undone, gone)
        self.closed.clear()
        self._sizes.clear()
        self._moments.clear()

    def _write(self, live: str, pieces: Sequence[bytes]) -> None:
        if not pieces:
            return
        descriptor = self._descriptor(live)
        try:
            self._pour(descriptor, pieces)
        except OSError as error:
            error.filename = str(self._root / live)
            raise

    def _pour(self, descriptor: int, pieces: Sequence[bytes]) -> None:
        for begin in range(0, len(pieces), _MOST_PIECES):
            part = pieces[begin : begin + _MOST_PIECES]
            total = sum(map(len, part))
            written = os.writev(descriptor, part)
            if written != total:
                writeback.write_rest(descriptor, b"".join(part)[written:])
            if total >= _LARGE:
                writeback.begin(descriptor)  # while the next messages come in

    def _descriptor(self, live: str) -> int:
        if (descriptor := self._open.get(live)) is not None:
            return descriptor
        if len(self._open) >= self._most_open:
            self._make_room()
        if self._sizes[live] == 0:
            return self._make(live)
        with self._folders.naming(live):
            name, opened = self._folders.at(live)
            descriptor = os.open(name, _FLAGS, dir_fd=opened)
        self._open[live] = descriptor
        return descriptor

    def _make_room(self) -> None:
        # all of them: one alone would cost as much time on the disk as all together
        if self._has_left or self._folders.can_sync_all():
            self._leave_all()
        else:
            self._settle_all()
            self._close_all()

    def _make(self, live: str) -> int:
        folder, _, name = live.rpartition("/")
        mode = self._permissions.file
        with self._folders.naming(live):
            self._folders.note_change(folder)
            try:
                descriptor = self._create(folder, name)
            except FileNotFoundError:  # the folder was empty, and removed
                self._folders.look_again()
                descriptor = self._create(folder, name)
            self._open[live] = descriptor
            give(descriptor, mode, self._permissions)
        return descriptor

    def _create(self, folder: str, name: str) -> int:
        opened = self._folders.make(folder)
        return os.open(name, _FLAGS | os.O_CREAT, self._permissions.file, dir_fd=opened)

    def rotate(self, live: str) -> None:
        """Close a live file whose image was taken and that has lines; raises OSError."""
        number = self._next_number(live)
        descriptor = self._descriptor(live)
        del self._open[live]
        self._finish_and_close(live, descriptor)
        fault("closed")
        with self._folders.naming(live):
            name, opened = self._folders.at(live)
            closed = rotation.closed_name(name, number)
            os.rename(name, closed, src_dir_fd=opened, dst_dir_fd=opened)
        fault("rotated")
        self._numbers.note(live, number)
        self._sizes[live] = 0
        self.closed.append(rotation.closed_name(live, number))
        self._make(live)

    def _next_number(self, live: str) -> int:
        return max(self._numbers.highest(live) + 1, self._lengths.number(live))

    def _close_all(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> "Output":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_all()
        self._folders.close()
