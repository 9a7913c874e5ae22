"""Files that were looked at and are left until there is a reason to look again. Memory only; judges nothing."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from shipper.files.identity import fingerprint
from shipper.files.sighting import FileKey, Sighting

__all__ = ["Passed"]


@dataclass(frozen=True, slots=True)
class _Left:
    sighting: Sighting
    original: str | None
    head: str


class Passed:
    """What is passed over, by device and inode: until it changes or, of a copy, until its original is read no longer."""

    def __init__(self) -> None:
        self._left: dict[FileKey, _Left] = {}
        self._gone: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._left

    def leave(self, sighting: Sighting, original: str | None = None, head: bytes = b"") -> None:
        """Pass a file over from now on; `original` is the id of the file that it is a copy of.

        What a file from before our time began with, `head`, tells it when it has been compressed.
        """
        self._left[sighting.key] = _Left(sighting, original, fingerprint(head) if head else "")

    def was_left(self, head: bytes) -> bool:
        """Whether a file that was passed over, and has gone since the last look, began like this."""
        return bool(head) and fingerprint(head) in self._gone

    def wanted(self) -> list[Sighting]:
        """Return those that a pattern shows and that are no copies: they were not written for too long."""
        lefts = self._left.values()
        return [x.sighting for x in lefts if x.original is None and x.sighting.wanted]

    def ask_again(self) -> None:
        """Forget those that were not written for too long: that may be judged otherwise now."""
        for sighting in self.wanted():
            del self._left[sighting.key]

    def keep(
        self, files: Mapping[FileKey, Sighting], being_read: Callable[[], Container[str]]
    ) -> None:
        """Forget what changed or is gone, and the copies of files that are not `being_read`, by id."""
        waits = any(left.original is not None for left in self._left.values())
        read = being_read() if waits else ()
        self._gone = {
            left.head
            for key, left in self._left.items()
            if left.head and not _is_unchanged(left.sighting, files.get(key))
        }
        self._left = {
            key: left
            for key, left in self._left.items()
            if _is_unchanged(left.sighting, files.get(key))
            and (left.original is None or left.original in read)
        }


def _is_unchanged(before: Sighting, now: Sighting | None) -> bool:
    if now is None or now.is_live != before.is_live:
        return False
    return (now.packed, now.modified, now.wanted) == (before.packed, before.modified, before.wanted)
