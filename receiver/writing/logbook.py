"""The journal of a partition on disk: appended and synced before files are touched, rewritten when it has grown."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from broker.app.faults import fault
from broker.app.folder import open_folder
from broker.app.whole import half_made
from receiver.writing import journal
from receiver.writing.journal import Batch, PreImage
from receiver.writing.opening import descriptor_of, opened, read

__all__ = ["Logbook", "append", "cut_back", "named", "sync_folder"]

_GROWN = 64 * 1024  # bytes after which a closed batch is the last that the file is appended to


class Logbook:
    """The open journal of one partition; whoever holds the partition's lock may have one."""

    spans: str
    """The seal that the file of spans has by the journal, empty where that is not known."""

    def __init__(self, path: Path) -> None:
        """Open the journal, make it where there is none, and read its last batch; raises OSError, `DamagedJournal`."""
        self._path = path
        self._file = descriptor_of(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            data = read(path)
            last = journal.decode(data)
            self.last: Batch | None = last and last.seen_in(self._inode)
            self._seal = 0
            self._spans_before = last.spans_before if last else ""
            self.spans = self._spans()
            self._cut_torn_line(data)
        except BaseException:
            os.close(self._file)
            raise

    def accept_spans(self) -> None:
        """Take the file of spans as it is: a person has said that journal and files belong together."""
        self.spans = self._spans_before = ""

    def _spans(self) -> str:
        if self.last is None:
            return ""
        return self.last.spans_before if self.last.until is None else self.last.spans

    def _cut_torn_line(self, data: bytes) -> None:
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.ftruncate(self._file, whole)
        self._size = whole

    def start(self, epoch: int, first: int, images: Iterable[PreImage]) -> None:
        """Open a batch and announce its first files; on disk when this returns."""
        if self._size > _GROWN:
            self._renew(epoch, first, images)
        else:
            self._seal = 0
            start = journal.encode_start(epoch, first, self._inode, self.spans)
            self._append(start + journal.encode_images(images))

    def announce(self, images: Iterable[PreImage]) -> None:
        """Announce more files of the open batch; on disk when this returns."""
        self._append(journal.encode_images(images))

    def settle(self, epoch: int, first: int, images: Iterable[PreImage] = ()) -> None:
        """Say that the files hold what is before `first` and nothing more: the last batch is undone.

        Else it would go on saying how far they were written. On disk when this returns.
        """
        self.spans = self._spans_before
        self.start(epoch, first, images)
        self.end(first)

    def end(self, until: int, spans: str | None = None) -> None:
        """Close the batch: all its files are on disk by now, and the spans have this seal (None: the one that they had).

        On disk when this returns.
        """
        self.spans = self.spans if spans is None else spans
        self._append(journal.encode_end(until, self.spans))

    @property
    def _inode(self) -> int:
        return os.fstat(self._file).st_ino

    def _append(self, data: bytes) -> None:
        if not data:
            return
        if not self._size:  # made just now, or by somebody who could not bring its name to disk
            sync_folder(self._path.parent)
        whole, seal = journal.sealed(data, self._seal)
        try:
            with named(self._path):
                self._bring(whole)
        except OSError:
            with suppress(OSError):  # that's fine: it announces nothing that will be done
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(whole)
        self._seal = seal

    def _bring(self, data: bytes) -> None:
        if os.write(self._file, data) != len(data):
            raise OSError(28, "No space left on device")
        fault("journalled")
        os.fdatasync(self._file)

    def _renew(self, epoch: int, first: int, images: Iterable[PreImage]) -> None:
        # The old batches are committed, or the caller would have undone them: nothing in here is needed any more. The
        # new one is in the file before it takes the old one's place, so that an empty journal is always a damaged one.
        name = self._path.name
        with open_folder(self._path.parent) as folder:
            with half_made(folder, name) as half:
                fresh = half.file.fileno()
                start = journal.encode_start(epoch, first, os.fstat(fresh).st_ino, self.spans)
                opening, self._seal = journal.sealed(start + journal.encode_images(images))
                half.file.write(opening)
                half.file.flush()
                os.fsync(fresh)
                fault("journal_renewed")
                half.put(name)
                os.dup2(fresh, self._file, inheritable=False)
                self._size = len(opening)
            fault("journal_replaced")
            folder.sync()

    def __enter__(self) -> "Logbook":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk: names made, renamed or removed in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Have an OSError from inside say which file it is about: those of writing and syncing do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def append(path: Path, data: bytes) -> None:
    """Append to a file, and make it where there is none; on disk when this returns. Raises OSError."""
    with named(path), opened(path, "ab") as file:
        is_fresh = not file.tell()
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())
    if is_fresh:
        sync_folder(path.parent)


def cut_back(path: Path, image: PreImage) -> None:
    """Cut a file that only grows back to a length that it had, on disk when this returns.

    Through a descriptor of its own: after a failed fsync the kernel takes pages for clean that never reached the disk.
    Raises OSError, and EOFError when the file is shorter than that, or was written anew since.
    """
    if not os.path.lexists(path):
        return  # that's fine: somebody has removed it, as an error told him to
    with opened(path, "ab") as file:
        found, length = os.fstat(file.fileno()), image.length or 0
        if image.inode not in (0, found.st_ino):
            raise EOFError(f"{path} was written anew since the batch that is to be undone")
        if found.st_size < length:
            raise EOFError(f"{path} has {found.st_size} bytes, but {length} were committed")
        file.truncate(length)
        os.fsync(file.fileno())
