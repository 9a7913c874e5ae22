"""What a look at the folders shows: files by identity, and what could not be seen. Values only."""

from dataclasses import dataclass

from shipper.notice import Notice

__all__ = ["FileKey", "Scan", "Sighting"]


@dataclass(frozen=True, slots=True, order=True)
class FileKey:
    """Device and inode: names a file for as long as it exists or is open, and no longer."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """A regular file at a path.

    `family` is the live path that it belongs to: its own, or that of the file which it was rotated from. `wanted` says
    that a pattern shows it; the others are only rotated siblings of one that is. `real` is the path behind a symbolic
    link. `modified` is in nanoseconds since the epoch.
    """

    path: str
    real: str
    family: str
    key: FileKey
    size: int
    modified: int
    wanted: bool

    @property
    def is_live(self) -> bool:
        """Whether it stands where its writer writes, rather than being a rotated sibling."""
        return self.path == self.family


@dataclass(frozen=True, slots=True)
class Scan:
    """All that one look showed; `folders` are those that changes are to be watched in."""

    sightings: tuple[Sighting, ...]
    troubles: tuple[Notice, ...]
    folders: tuple[str, ...]
