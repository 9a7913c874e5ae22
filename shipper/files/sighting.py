"""What a look at the folders shows: files by identity, and what could not be seen. Values only."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from shipper.files.packing import Packing
from shipper.notice import Notice

__all__ = ["FileKey", "Packed", "Scan", "Sighting"]


@dataclass(frozen=True, slots=True, order=True)
class FileKey:
    """Device and inode: names a file for as long as it exists or is open, and no longer."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Packed:
    """How a file is compressed, and its bytes on disk; they and its time of change tell whether it changed."""

    packing: Packing
    stored: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """A regular file at a path.

    `family` is the live path that it belongs to: its own, or that of the file which it was rotated from. `wanted` says
    that a pattern shows it; the others are only rotated siblings of one that is. `real` is the path behind a symbolic
    link. `modified` is in nanoseconds since the epoch. Of a compressed file `size` is that of its content once it was
    glimpsed at, as far as it is known.
    """

    path: str
    real: str
    family: str
    key: FileKey
    size: int
    modified: int
    wanted: bool
    packed: Packed | None = None

    @property
    def is_live(self) -> bool:
        """Whether it stands where its writer writes, rather than being a rotated sibling."""
        return self.path == self.family

    def differs(self, before: "Sighting") -> bool:
        """Whether it may be another file or have other bytes than before; a compressed one may be renamed freely."""
        if self.packed is not None:
            return (self.packed, self.modified) != (before.packed, before.modified)
        return self != before


@dataclass(frozen=True, slots=True)
class Scan:
    """All that one look showed; `folders` are those that changes are to be watched in.

    `families` are the live paths whose siblings were looked for, `siblings` these by path, with the inodes that their
    folders tell, sighted or not.
    """

    sightings: tuple[Sighting, ...]
    troubles: tuple[Notice, ...]
    folders: tuple[str, ...]
    families: Set[str] = frozenset()
    siblings: Mapping[str, int] = field(default_factory=dict)
