"""How large files are and when they were written last, and what stands at a path. Touches no byte of them."""

import os
from dataclasses import dataclass

from shipper.files.sighting import FileKey

__all__ = ["Folder", "Glimpse", "Target", "folder_at", "glimpse"]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """`size` in bytes, `modified` in nanoseconds since the epoch."""

    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Target:
    """A file to look at: by its path or, when it is open, by its descriptor, wherever it stands by now."""

    key: FileKey
    path: str
    descriptor: int | None = None

    @property
    def reach(self) -> str:
        """A path that leads to the file (proc(5)) or, when it is not open, to where it was seen."""
        return self.path if self.descriptor is None else f"/proc/self/fd/{self.descriptor}"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as it was seen; `changed` is when files came or went in it last, in nanoseconds since the epoch."""

    key: FileKey
    path: str
    changed: int


def glimpse(target: Target) -> Glimpse | None:
    """Return how large a file is; None when another one, or none, stands where it was seen."""
    try:
        status = os.stat(target.path if target.descriptor is None else target.descriptor)  # noqa: PTH116 - thousands
    except OSError:
        return None
    if FileKey(status.st_dev, status.st_ino) != target.key:
        return None
    return Glimpse(status.st_size, status.st_mtime_ns)


def folder_at(path: str) -> Folder | None:
    """Return what stands at a path; None when nothing does."""
    try:
        status = os.stat(path)  # noqa: PTH116 - one call less for each of many folders
    except OSError:
        return None
    return Folder(FileKey(status.st_dev, status.st_ino), path, status.st_mtime_ns)
