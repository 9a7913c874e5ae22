"""Where a file's content begins whose writer kept its old offset over a truncation. Decides only.

Such a writer leaves a hole as long as what was truncated: bytes that nobody wrote. The file system tells a hole by whole
blocks; the NULs before the content in the first block belong to it. A hole further on is NULs of the content.
"""

from collections.abc import Iterable

from shipper.cursor import Cursor
from shipper.following.chain import Stranger

__all__ = ["start_of"]


def start_of(stranger: Stranger, known: Iterable[Cursor]) -> int:
    """Return the offset that the content begins at: behind the hole, 0 where there is none.

    `known` are cursors of all files. A hole of less than a block shows only as NULs: they are one when the same inode
    held lines before, and not more of them than there are NULs.
    """
    if stranger.hole or not stranger.begin:
        return stranger.begin
    inode = stranger.sighting.key.inode
    before = (c.offset for c in known if c.identity.inode == inode)
    return stranger.begin if any(0 < offset <= stranger.begin for offset in before) else 0
