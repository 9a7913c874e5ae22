"""What a scan sees: a file's key, its entry, and a sibling that cannot be decompressed."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from shipper.sources.files.paths import Compression, decompressed_name

_NUMBER = re.compile(r".*[^0-9]([0-9]{1,4})", re.ASCII | re.DOTALL)


class FileKey(NamedTuple):
    """Device and inode: identifies a file while the file exists or is open, and no longer."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file at a path.

    `group` is the live path that the file belongs to: its own path, or that of the file which it
    was rotated from. `real` is the path behind a symbolic link. `size` is the size on disk.
    `modified` is in nanoseconds since the epoch. `wanted`: a pattern shows the file; other entries
    are rotated siblings of such a file. `is_sought`: no pattern leads here; the file is ignored
    unless it is one that we know.
    """

    path: str
    real: str
    group: str
    key: FileKey
    size: int
    modified: int
    wanted: bool
    compression: Compression | None = None
    is_sought: bool = False

    @property
    def is_live(self) -> bool:
        """Whether its writer still writes to this path."""
        return self.path == self.group

    @property
    def age(self) -> tuple[int, int, str]:
        """The sort key of rotated files, oldest first: last write, number (higher is older)."""
        number = _NUMBER.fullmatch(decompressed_name(self.path))
        return self.modified, -int(number[1]) if number else 0, self.path

    def differs(self, before: "FileEntry") -> bool:
        """Whether this may be another file or have other bytes.

        A compressed file may be renamed without being another one.
        """
        if self.compression is None:
            return self != before
        return (self.size, self.modified) != (before.size, before.modified)


class UnreadableSibling(NamedTuple):
    """A rotated file in a form of compression that cannot be read here."""

    path: str
    group: str
    size: int
    modified: int
