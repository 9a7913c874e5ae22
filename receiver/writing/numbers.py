"""Which numbers the closed segments of live files have, as their folders list them: none is given twice."""

import os
import time

from receiver.writing import rotation
from receiver.writing.folders import Folders

__all__ = ["Numbers"]

_SETTLED = (
    20_000_000  # nanoseconds: kernels stamp folders by a clock of some milliseconds (CONFIG_HZ)
)
_MOST_LISTINGS = 20_000  # folders; with a folder a day and host there would be ever more

_listings: dict[tuple[int, int], tuple[int, dict[str, int]]] = {}
"""By a folder's device and inode: its time of change and the highest segment numbers that it held then.

Survives in a reused worker.
"""


class Numbers:
    """The highest numbers as one batch sees them.

    Only tasks of one partition, one after the other, make segments of one live file: a listing from before the batch
    stays true in it, and one from an earlier batch while the folder has not changed since.
    """

    def __init__(self, folders: Folders) -> None:
        """Have listed nothing yet."""
        self._folders = folders
        self._highest: dict[str, dict[str, int]] = {}

    def highest(self, live: str) -> int:
        """Return the highest number of a live file's segments, 0 for none; raises OSError."""
        folder, _, name = live.rpartition("/")
        return self._of(folder).get(name, 0)

    def note(self, live: str, number: int) -> None:
        """Remember a segment that was made."""
        folder, _, name = live.rpartition("/")
        self._of(folder)[name] = number

    def forget(self) -> None:
        """Remember nothing: the folders are to be listed again."""
        self._highest.clear()

    def segments(self, folder: str) -> dict[str, dict[int, str]]:
        """Return the closed segments that are in a folder now, by name of the live file and number; raises OSError."""
        try:
            return rotation.closed_segments(_names(self._folders.open(folder)))
        except FileNotFoundError:
            return {}

    def _of(self, folder: str) -> dict[str, int]:
        if folder not in self._highest:
            self._highest[folder] = self._listed(folder)
        return self._highest[folder]

    def _listed(self, folder: str) -> dict[str, int]:
        try:
            opened = self._folders.open(folder)
        except FileNotFoundError:
            return {}
        found = os.fstat(opened)
        place = (found.st_dev, found.st_ino)
        known = _listings.get(place)
        if known is None or known[0] != found.st_mtime_ns:
            known = (found.st_mtime_ns, rotation.highest_numbers(_names(opened)))
            if len(_listings) >= _MOST_LISTINGS:
                _listings.clear()
            if time.time_ns() - found.st_mtime_ns > _SETTLED:
                _listings[place] = known
        return dict(known[1])


def _names(folder: int) -> list[str]:
    return os.listdir(folder)
