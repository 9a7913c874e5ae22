"""Remembers which rotated siblings were seen as copies beside their original. Memory only; judges nothing."""

from collections.abc import Container, Iterable

from shipper.files.sighting import FileKey, Sighting
from shipper.files.tailer import Tailer

__all__ = ["Copies", "rest_of"]


def rest_of(truncated: Tailer, tailers: Iterable[Tailer]) -> Sighting | None:
    """Return where the rest of a truncated file is read from, None when it is nowhere.

    A copy of one of which nothing was read is a file of its own, which begins as that did.
    """
    family, begins = truncated.sighting.family, truncated.beginning
    for tailer in tailers:
        if tailer.file == truncated.file:
            return tailer.sighting
        is_copy = truncated.is_unread and tailer.is_unread and tailer.rotated is not None
        begins_so = tailer.beginning.startswith(begins) and tailer.sighting.family == family
        if begins and is_copy and begins_so:
            return tailer.sighting
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
