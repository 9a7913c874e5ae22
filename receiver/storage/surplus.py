"""Bytes behind the committed length of a live file: kept as long as they may be received again.

A task that dies leaves lines in live files that are not committed. The next session receives these
lines again, and until then the bytes stay: after a truncation `tail -F` prints the whole file
again, and a shipper that follows received files ships it again. The session compares the lines that
it appends with the bytes that the file has already. It cuts a file

- at the first byte that differs: after a power loss the end of a file may be zeros, and another
  program may have appended to it;
- at the committed length, once the session has committed all messages that the stream had when it
  began, or a server that has all messages has none left: nothing fills the rest. What the
  partition's consumer counts as pending is no proof, since its server may lag.

Nothing of this is stored: each session finds the surplus by the sizes of the files (`recovery`). A
file with a surplus is not closed, since the next lines for it are those that it has already.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from nats_logship.app.faults import fault
from receiver.storage.folders import Folders
from receiver.storage.rows import FileRow, inode_of
from receiver.storage.store import Store

_MOST_NOTICES = 20  # per session
_NO_FILE = {errno.EISDIR, errno.ELOOP, errno.ENOTDIR}  # a folder or a link is there
_DIFFERENT = "are not the lines that belong there, after a power loss or by another program"
_NOT_FILLED = "belong to no message, after a power loss or by another program"
BY_OTHERS = "were appended by another program; received files must not be written to by others"
"""Why bytes are cut off that were never ours, for `Surplus.cut`."""


@dataclass(slots=True)
class Surplus:
    """The surplus of a partition's live files in one session, under the partition's lock.

    `ends` has, by path, where the surplus of a file ends. It begins at the end of the lines that
    the session has appended, and is gone when these reach its end.
    """

    ends: dict[str, int] = field(default_factory=dict)
    _notices: list[str] = field(default_factory=list)
    _cuts: int = 0

    def compare(self, folders: Folders, row: FileRow, begin: int, pieces: Iterable[bytes]) -> None:
        """Compare lines, before they are written from byte `begin` on, with what a file has there.

        Cuts the file at the first byte that differs. Equal bytes must be written, too: their pages
        are dirty then, so that the batch's sync brings them to disk or fails. After a sync that
        failed, the kernel takes pages for clean that never reached the disk. Raises OSError.
        """
        path, found = row.path, folders.find(row.path)
        size = found.st_size if found and inode_of(found) == row.inode else 0
        end = self.ends[path] = min(size, self.ends[path])
        if end <= begin:
            del self.ends[path]
            return
        with folders.open_parent(path) as (folder, name), folders.naming(path):
            descriptor = folder.open(name, os.O_RDONLY)
            try:
                different = _find_difference(descriptor, begin, end, pieces)
            finally:
                os.close(descriptor)
        if different is not None:
            self.cut(folders, path, size, different, _DIFFERENT)
        if different is not None and different > begin:
            self.ends[path] = different

    def note_written(self, path: str, size: int) -> None:
        """Note that lines reach up to byte `size` of a file: its surplus may be filled."""
        if size >= self.ends[path]:
            del self.ends[path]

    def cut_rest(self, store: Store, folders: Folders) -> None:
        """Cut all files at their committed lengths, when no message fills them.

        Passes over files that were left to another partition. Raises OSError.
        """
        for path in list(self.ends):
            row, found = store.find_file(path), find_safely(folders, path)
            if row and found and inode_of(found) == row.inode and found.st_size > row.length:
                self.cut(folders, path, found.st_size, row.length, _NOT_FILLED)
        self.ends.clear()

    def cut(self, folders: Folders, path: str, size: int, length: int, reason: str) -> None:
        """Cut a file of `size` bytes to a length, with a notice; raises OSError."""
        folders.cut(path, length)
        fault("surplus_cut")
        self.ends.pop(path, None)
        self._cuts += 1
        if self._cuts <= _MOST_NOTICES:
            self._notices.append(
                f"{path}: {size - length} bytes from byte {length} on, behind the committed "
                f"length, were cut off: they {reason}"
            )

    def take_notices(self) -> list[str]:
        """Return what was cut since the last call, in sentences for the log."""
        notices, self._notices = self._notices, []
        if self._cuts > _MOST_NOTICES:
            notices.append(f"bytes of {self._cuts - _MOST_NOTICES} more files were cut off")
            self._cuts = _MOST_NOTICES
        return notices


def find_safely(folders: Folders, path: str) -> os.stat_result | None:
    """Return the status of a file; None if there is none, or if something else is at its path.

    The next batch with lines for the file reports the latter. Raises OSError if it cannot be looked
    at just now: without its surplus the file would be cut, although its lines come again.
    """
    try:
        return folders.find(path)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
    return None


def _find_difference(descriptor: int, begin: int, end: int, pieces: Iterable[bytes]) -> int | None:
    """Return the first byte of `[begin, end)` of a file that is not as in the pieces, or None."""
    for piece in pieces:
        if begin >= end:
            return None
        found = os.pread(descriptor, min(len(piece), end - begin), begin)
        if not piece.startswith(found):
            return begin + _count_equal(piece, found)
        begin += len(piece)
    return None


def _count_equal(one: bytes, other: bytes) -> int:
    """Return how many first bytes are equal, by halving: a comparison of slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
