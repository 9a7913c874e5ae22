"""Finds files that came and went between two scans, by the events of inotify: none read them."""

import os
from collections import Counter
from collections.abc import Collection, Sequence

from shipper.sources.files.identity import FileEntry
from shipper.sources.files.paths import Selection, compression_of, pattern_of
from shipper.sources.notices import Notice, NoticeKind


class PassingFiles:
    """What came since the last scan, and what of that was deleted; a renamed file is found again.

    A folder that comes is watched only after the next scan, so it counts for its files. The paths
    of folders end with a slash.
    """

    def __init__(self) -> None:
        self._came: set[str] = set()
        self._deleted: list[str] = []
        self._seen: tuple[Collection[FileEntry], Sequence[str]] = (), ()  # by the last scan
        self._counts = Counter[str]()  # of missed files, by folder

    def note_came(self, path: str) -> None:
        """Note that a file or folder was created, or moved here."""
        self._came.add(path)

    def note_moved(self, path: str) -> None:
        """Note that it was moved away."""
        self._came.discard(path)

    def note_deleted(self, path: str) -> None:
        """Note that it was deleted."""
        if path in self._came:
            self._came.remove(path)
            self._deleted.append(path)

    def find_missed(
        self, entries: Collection[FileEntry], folders: Sequence[str], selection: Selection
    ) -> list[Notice]:
        """Return a notice for each folder from which files are missing that no scan saw.

        A scan has just seen these entries and folders.
        """
        (before, folders_before), self._seen = self._seen, (entries, folders)
        if not (self._came or self._deleted):
            return []
        seen = {path for one in (*before, *entries) for path in (one.path, one.real)}
        seen.update(f"{one}/" for one in (*folders, *folders_before))
        # what is still there may be a link that leads nowhere yet
        self._came = {path for path in self._came - seen if _shows(selection, path)}
        deleted, self._deleted = self._deleted, []
        missed = [path for path in deleted if path not in seen and _shows(selection, path)]
        homes = {_home_of(path): path for path in missed}
        self._counts.update(map(_home_of, missed))
        return [self._report(home, last) for home, last in homes.items()]

    def _report(self, home: str, last: str) -> Notice:
        text = f"{self._counts[home]} that came were deleted before a scan, and not read"
        return Notice(NoticeKind.UNREAD, home, f"{text}; the last one is {last}")


def _home_of(path: str) -> str:
    return os.path.dirname(path.rstrip("/"))  # noqa: PTH120


def _shows(selection: Selection, path: str) -> bool:
    """Whether a pattern shows this file, or files in this folder."""
    if path.endswith("/"):
        return any(pattern_of(_home_of(one)).fullmatch(path[:-1]) for one in selection.patterns)
    return compression_of(path) is None and selection.shows(path)  # or else a copy, as a rule
