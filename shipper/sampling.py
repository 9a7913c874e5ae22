"""Takes a glimpse of files that nobody follows yet. Blocks, so it runs in a thread; keeps nothing open."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shipper.cursor import Cursor
from shipper.identity import HEAD_BYTES, TAIL_BYTES
from shipper.notice import Notice, NoticeKind
from shipper.sighting import FileKey, Sighting

__all__ = ["Ask", "Sample", "open_read_only", "sample"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A file to glimpse at, the cursors whose offset it may have reached, and the sizes that copies of it have."""

    sighting: Sighting
    cursors: tuple[Cursor, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """The first bytes of a file, its size then, and the bytes before each cursor's offset and before each size."""

    size: int
    head: bytes
    tails: Mapping[str, bytes]
    ends: Mapping[int, bytes]


def open_read_only(path: str, flags: int = os.O_RDONLY) -> int:
    """Open without waiting for a writer, should the path have become a pipe; raise OSError as `os.open` does."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def sample(asks: Sequence[Ask]) -> dict[FileKey, Sample | Notice]:
    """Return what each file looks like; one that is no longer where it was sighted is left out."""
    found: dict[FileKey, Sample | Notice] = {}
    for ask in asks:
        seen = _sample(ask)
        if seen is not None:
            found[ask.sighting.key] = seen
    return found


def _sample(ask: Ask) -> Sample | Notice | None:
    path = ask.sighting.path
    try:
        descriptor = open_read_only(path)
    except PermissionError:
        return Notice(NoticeKind.UNREADABLE, path, "may not be read: check its owner and mode")
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if FileKey(status.st_dev, status.st_ino) != ask.sighting.key:
            return None
        head = os.pread(descriptor, HEAD_BYTES, 0)
        tails = {
            cursor.file: _before(descriptor, cursor.offset, cursor.identity.tail_length)
            for cursor in ask.cursors
        }
        ends = {size: _before(descriptor, size, TAIL_BYTES) for size in ask.sizes}
        return Sample(status.st_size, head, tails, ends)
    except OSError as error:
        return Notice(NoticeKind.UNREADABLE, path, f"cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)


def _before(descriptor: int, offset: int, length: int) -> bytes:
    start = max(0, offset - length)
    return os.pread(descriptor, offset - start, start)
