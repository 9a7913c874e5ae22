"""Where a file's content begins whose writer kept its old offset over a truncation. Memory of inodes; touches no disk.

Such a writer leaves a hole as long as what was truncated: bytes that nobody wrote. The file system tells a hole by whole
blocks; the NULs before the content in the first block belong to it. A hole further on is NULs of the content.
"""

from collections.abc import Collection, Iterable

from shipper.cursor import Cursor
from shipper.files.sighting import FileKey
from shipper.following.chain import Stranger

__all__ = ["Holes"]


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

    def start_of(self, stranger: Stranger, known: Iterable[Cursor]) -> int:
        """Return the offset that the content begins at: behind the hole, 0 where there is none.

        `known` are cursors of all files. A hole of less than a block shows only as NULs: they are one when the same inode
        held lines before, and not more of them than there are NULs.
        """
        if stranger.hole or not stranger.begin:
            return stranger.begin
        inode = stranger.sighting.key.inode
        before = [c.offset for c in known if c.identity.inode == inode]
        before.append(self._left.get(inode, 0))
        return stranger.begin if any(0 < offset <= stranger.begin for offset in before) else 0
