"""What is remembered of files that are not followed: their cursors, files that are ignored, copies, and holes."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from shipper.positions import Cursor, forgettable
from shipper.tail.identity import fingerprint
from shipper.tail.paths import Selection, group_of
from shipper.tail.rules import Candidate
from shipper.tail.scan import FileEntry, FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Copies", "Holes", "Memory", "Passed", "rest_of"]

_GROWTH = 256
"""By how much memory may grow until it is sorted out again."""


class Memory:
    """The cursors without a file by id, and the live paths; both grow, and `tidy` keeps them in bounds."""

    def __init__(self, known: Iterable[Cursor], selection: Selection) -> None:
        """Begin with all cursors, and the live paths that are selected."""
        self.cursors = {cursor.file: cursor for cursor in known}
        self.lives: set[str] = set()
        self._let_go: set[str] = set()
        self._stood: dict[str, str] = {}
        self._size = 0
        self.select(selection)

    def select(self, selection: Selection) -> None:
        """Look for siblings of the selected live paths only."""
        paths = (*self.lives, *(cursor.path for cursor in self.cursors.values()))
        self.lives = {path for path in paths if selection.shows(path)}

    def take(self, tailer: Tailer) -> None:
        """Remember how far a file was read that is followed no longer."""
        self.cursors[tailer.file] = tailer.cursor
        self._stood[tailer.file] = tailer.entry.group

    def groups_of(self, cursor: Cursor) -> set[str]:
        """Return the groups in which copies of a file may be left: that which it came from, and its last one.

        These are two where a hard link showed it in another one when its first name was gone.
        """
        home = group_of(cursor.path, self.lives)
        return {home, self._stood.get(cursor.file, home)}

    def take_to_keep(self, tailer: Tailer) -> None:
        """Remember a file that is let go for another selection: it is there still, and may be named again."""
        self._let_go.add(tailer.file)
        self.cursors[tailer.file] = tailer.start if tailer.is_unread else tailer.cursor

    def drop_unread(self, left: Iterable[Tailer]) -> None:
        """Forget those of which nothing was read: they have but an inode to be known by, soon another file's."""
        for tailer in left:
            if tailer.is_unread:
                self.cursors.pop(tailer.file, None)

    def drop(self, cursors: Iterable[Cursor]) -> None:
        """Forget cursors that are of files that have another one."""
        for cursor in cursors:
            self.cursors.pop(cursor.file, None)

    def tidy(self, lives: Iterable[str], now: int) -> None:
        """Forget what is long gone, if much has gathered; `lives` are the live paths of files that are there."""
        if len(self.cursors) + len(self.lives) <= self._size + _GROWTH:
            return
        gone = [cursor for cursor in self.cursors.values() if cursor.file not in self._let_go]
        for cursor in forgettable(gone, now):
            del self.cursors[cursor.file]
        self.lives &= {*lives, *(cursor.path for cursor in self.cursors.values())}
        self._stood = {file: at for file, at in self._stood.items() if file in self.cursors}
        self._size = len(self.cursors) + len(self.lives)


@dataclass(frozen=True, slots=True)
class _Left:
    entry: FileEntry
    original: str | None
    head: str


class Passed:
    """What is passed over, by device and inode: until it changes or, of a copy, until its original is read no longer."""

    def __init__(self) -> None:
        self._left: dict[FileKey, _Left] = {}
        self._gone: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._left

    def leave(self, entry: FileEntry, original: str | None = None, head: bytes = b"") -> None:
        """Pass a file over from now on; `original` is the id of the file that it is a copy of.

        What a file from before our time began with, `head`, tells it when it has been compressed.
        """
        self._left[entry.key] = _Left(entry, original, fingerprint(head) if head else "")

    def was_left(self, head: bytes) -> bool:
        """Whether a file that was passed over, and has gone since the last look, began like this."""
        return bool(head) and fingerprint(head) in self._gone

    def wanted(self) -> list[FileEntry]:
        """Return those that a pattern shows and that are no copies: they were not written for too long."""
        lefts = self._left.values()
        return [x.entry for x in lefts if x.original is None and x.entry.wanted]

    def ask_again(self) -> None:
        """Forget those that were not written for too long: that may be judged otherwise now."""
        for entry in self.wanted():
            del self._left[entry.key]

    def keep(
        self, files: Mapping[FileKey, FileEntry], being_read: Callable[[], Container[str]]
    ) -> None:
        """Forget what changed or is gone, and the copies of files that are not `being_read`, by id."""
        waits = any(left.original is not None for left in self._left.values())
        read = being_read() if waits else ()
        self._gone = {
            left.head
            for key, left in self._left.items()
            if left.head and not _is_unchanged(left.entry, files.get(key))
        }
        self._left = {
            key: left
            for key, left in self._left.items()
            if _is_unchanged(left.entry, files.get(key))
            and (left.original is None or left.original in read)
        }


def _is_unchanged(before: FileEntry, now: FileEntry | None) -> bool:
    if now is None or now.is_live != before.is_live:
        return False
    return (now.packed, now.modified, now.wanted) == (before.packed, before.modified, before.wanted)


def rest_of(truncated: Tailer, tailers: Iterable[Tailer]) -> FileEntry | None:
    """Return where the rest of a truncated file is read from, None when it is nowhere.

    A copy of one of which nothing was read is a file of its own, which begins as that did.
    """
    group, begins = truncated.entry.group, truncated.beginning
    for tailer in tailers:
        if tailer.file == truncated.file:
            return tailer.entry
        is_copy = truncated.is_unread and tailer.is_unread and tailer.rotated is not None
        begins_so = tailer.beginning.startswith(begins) and tailer.entry.group == group
        if begins and is_copy and begins_so:
            return tailer.entry
    return None


class Copies:
    """The originals of copies, by device and inode, each with what the copy began with when it was noted.

    An inode may be another file's by the next look; a copy may have grown since, but begins as it did.
    """

    def __init__(self) -> None:
        self._noted: dict[FileKey, tuple[str, bytes]] = {}

    def original(self, key: FileKey, head: bytes) -> str | None:
        """Return the id of the file that this one was a copy of when it was noted; None when it is another now."""
        file, beginning = self._noted.get(key, (None, b""))
        return file if head.startswith(beginning) else None

    def note(self, key: FileKey, head: bytes, original: str) -> None:
        """Take note of a copy beside its original; the first note stands, since the original may be truncated later."""
        if self.original(key, head) is None:
            self._noted[key] = (original, head)

    def forget(self, key: FileKey) -> None:
        """Forget a copy: it is followed now."""
        self._noted.pop(key, None)

    def keep(self, there: Container[FileKey]) -> None:
        """Forget all that are not there any more."""
        self._noted = {key: noted for key, noted in self._noted.items() if key in there}


class Holes:
    """Which inodes held lines whose cursor has gone on to a copy: what is on them now may begin with a short hole."""

    def __init__(self) -> None:
        """Begin with none."""
        self._left: dict[int, int] = {}

    def moved(self, cursor: Cursor, to: FileKey) -> None:
        """Take note that a file is read on in the copy `to`, should it be one."""
        inode = cursor.identity.inode
        if cursor.offset and inode != to.inode:
            self._left[inode] = min(cursor.offset, self._left.get(inode, cursor.offset))

    def keep(self, there: Collection[FileKey]) -> None:
        """Forget the inodes of files that are not there any more."""
        if self._left:
            inodes = {key.inode for key in there}
            self._left = {inode: n for inode, n in self._left.items() if inode in inodes}

    def start_of(self, candidate: Candidate, known: Iterable[Cursor]) -> int:
        """Return the offset that the content begins at: behind the hole, 0 where there is none.

        `known` are cursors of all files. A hole of less than a block shows only as NULs: they are one when the same inode
        held lines before, and not more of them than there are NULs.
        """
        if candidate.hole or not candidate.begin:
            return candidate.begin
        inode = candidate.entry.key.inode
        before = [c.offset for c in known if c.identity.inode == inode]
        before.append(self._left.get(inode, 0))
        return candidate.begin if any(0 < offset <= candidate.begin for offset in before) else 0
