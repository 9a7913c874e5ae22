"""Opens files when they come, by a thread of its own: one that lives shortly can be read then.

A scan may be seconds away; the log of a pod may be gone by then. What came and went unopened is
counted.
"""

import os
import re
import select
import stat
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from shipper.sources.files import inotify
from shipper.sources.files.identity import FileEntry, FileKey
from shipper.sources.files.inotify import Inotify
from shipper.sources.files.listing import Refusals
from shipper.sources.files.paths import (
    COMPRESSED,
    Selection,
    expand_braces,
    fixed_part,
    live_names,
    pattern_of,
)
from shipper.sources.files.sampling import close, open_file
from shipper.sources.notices import Notice, NoticeKind

_LISTED = inotify.CAME  # a name that was there when its folder came: no event has both bits
_MOST_READS = 8  # of 2,000 events: as many as wait, unless the system was set to keep more
_CLOSING = 1.0  # seconds
_PATIENCE = 0.5  # seconds
_OVERFLOW = (
    "has more changes than inotify reports (fs.inotify.max_queued_events): "
    "files that came and were deleted may be missing"
)
_UNWATCHED = "cannot be watched for files that come and are deleted between two scans"


class Arrival(NamedTuple):
    """A file that came, as it was then, and its open descriptor."""

    entry: FileEntry
    descriptor: int

    @property
    def is_live(self) -> bool:
        """Whether its name is not one that rotation gives."""
        return not any(live_names(self.entry.path.rpartition("/")[2]))

    def find_gone(self) -> FileEntry | None:
        """Return the entry of a file that left its path, as it is now; None if not."""
        with suppress(OSError):
            found = os.stat(self.entry.path)  # noqa: PTH116 - a path of any bytes
            if (found.st_dev, found.st_ino) == self.entry.key:
                return None
        try:
            status = os.fstat(self.descriptor)
        except OSError:  # another machine deleted it, which sampling reports
            return self.entry
        return replace(self.entry, size=status.st_size, modified=status.st_mtime_ns)


class _Seen(NamedTuple):
    """What is at a path: a link by the time at which it was made, and the file, if there is one."""

    link: int
    key: FileKey | None

    @classmethod
    def at(cls, path: str) -> "_Seen":
        link, key = 0, None
        with suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                link, status = status.st_ctime_ns, os.stat(path)  # noqa: PTH116
            key = FileKey(status.st_dev, status.st_ino)
        return cls(link, key)


class ArrivedFiles:
    """What came to the watched folders since the last scan.

    Its thread opens the files that patterns show, `most` at a time; if that is 0, there is none.
    A folder that comes is watched at once if a pattern may show files in it, or beneath. The paths
    of folders end with a slash.
    """

    # A scan takes the events that wait first, so that what it sees is not taken for missed later.
    # Files are opened without `_lock`: one in a file system that hangs stops nobody for long.

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._inotify = Inotify(inotify.CAME | inotify.LEFT | inotify.DELETED)
        self._selection = Selection(())
        self._leads: Collection[re.Pattern[str]] = ()  # the folders to which files may come
        self._open: dict[FileKey, Arrival] = {}
        self._came: set[str] = set()  # those that are not open
        self._last: dict[str, _Seen] = {}  # what was at a path when the last event of it was noted
        self._folders: set[str] = set()  # that are watched before a scan saw them
        self._deleted: list[str] = []
        self._has_overflowed = False
        self._roots: Sequence[str] = ()  # the folders that patterns begin in, the deepest first
        self._counts = Counter[str]()  # of missed files, by root
        self._ending, self._end = -1, -1  # a pipe
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def watch(self, folders: Iterable[str], selection: Selection) -> list[Notice]:
        """Watch those of these folders to which files may come that the selection shows.

        Returns what is to be reported.
        """
        if not self._most:
            return []
        with self._lock:
            if selection is not self._selection:
                globs = list(chain.from_iterable(map(expand_braces, selection.patterns)))
                leads = dict.fromkeys(chain.from_iterable(map(_leads_of, globs)))
                self._roots = sorted({fixed_part(f"{one}*") for one in globs})[::-1]
                self._selection, self._leads = selection, list(map(pattern_of, leads))
            if self._inotify.descriptor < 0:
                self._begin()
            # a scan that began before they came did not see them
            self._folders = set(filter(os.path.isdir, self._folders.difference(folders)))
            self._inotify.watch({*filter(self._leads_to, folders), *self._folders})
            shortage = self._inotify.take_shortage()
        return [Notice(NoticeKind.UNWATCHED, "/", f"{_UNWATCHED}: {shortage}")] if shortage else []

    def opened(self) -> Mapping[FileKey, Arrival]:
        """Return the files that have come by now and are open."""
        self._take_events(_PATIENCE)
        with self._lock:
            return dict(self._open)

    def release(self, key: FileKey) -> int:
        """Leave a file to the caller, who closes the descriptor; -1 if it was left before."""
        arrival = self._open.pop(key, None)  # at once: `_lock` may be held in a folder that hangs
        return -1 if arrival is None else arrival.descriptor

    def find_missed(self, entries: Collection[FileEntry], folders: Sequence[str]) -> list[Notice]:
        """Return a notice for each folder of a pattern beneath which files came that nobody opened.

        A scan has just seen these entries and folders.
        """
        self._take_events(_PATIENCE)  # what the scan saw came before now
        with self._lock:
            notices = [Notice(NoticeKind.UNREAD, "/", _OVERFLOW)] * self._has_overflowed
            self._has_overflowed = False
            last, self._last = self._last, {}
            if not (self._came or self._deleted):
                return notices
            seen = {(path, one.key) for one in entries for path in (one.path, one.real)}
            paths = {path for path, _ in seen}.union(f"{one}/" for one in folders)
            self._came -= paths  # what is still there may be a link that leads nowhere yet
            deleted, self._deleted = self._deleted, []
        # if a path has the file that was opened there last, the scan did not see the one before
        later = {path for path, one in last.items() if (path, one.key) in seen}
        missed = [path for path in deleted if path not in paths or path in later]
        roots = {self._root_of(path): path for path in missed}
        self._counts.update(map(self._root_of, missed))
        return [*notices, *(self._report(root, path) for root, path in roots.items())]

    def close(self) -> None:
        """Stop watching, and close what was opened."""
        self._most = 0  # a scan that hangs may yet ask to watch
        if self._end >= 0:
            close(self._end)
            self._end = -1
            self._thread.join(_CLOSING)  # unless it opens a file in a file system that hangs
        for key in list(self._open):
            close(self.release(key))

    def _report(self, root: str, last: str) -> Notice:
        what = f"{self._counts[root]} that came were deleted or replaced before they were opened"
        text = f"{what}, and not read; the last one is {last}"
        return Notice(NoticeKind.UNREAD, root, text, is_total=True)

    def _root_of(self, path: str) -> str:
        above = (one for one in self._roots if path.startswith(f"{one.rstrip('/')}/"))
        return next(above, "/")

    def _leads_to(self, folder: str) -> bool:
        """Whether a pattern may show files in a folder, or beneath."""
        return any(lead.fullmatch(folder) for lead in self._leads)

    # what the events say

    def _begin(self) -> None:
        self._inotify.open()
        if self._inotify.descriptor >= 0:
            self._ending, self._end = os.pipe2(os.O_CLOEXEC)
            self._thread.start()

    def _run(self) -> None:
        waiting = select.poll()
        waiting.register(self._inotify.descriptor, select.POLLIN)
        waiting.register(self._ending, select.POLLHUP)
        while self._ending not in dict(waiting.poll()):
            self._take_events(-1)
        close(self._ending)
        with self._lock:
            self._inotify.close()

    def _take_events(self, patience: float) -> None:
        """Note what was reported since the last time; wait for so many seconds, -1 is for ever."""
        if not self._taking.acquire(timeout=patience):
            return
        try:
            for _ in range(_MOST_READS):
                with self._lock:  # a watch is known by its number once it is added
                    events = list(self._inotify.read())
                    found = [(e.mask, path) for e in events for path in self._inotify.paths_of(e)]
                if not events:
                    break
                self._has_overflowed |= any(event.mask & inotify.OVERFLOW for event in events)
                for mask, path in found:  # and what is in folders that came
                    found += self._note(mask, path)
        finally:
            self._taking.release()

    def _note(self, mask: int, path: str) -> Iterable[tuple[int, str]]:
        name = f"{path}/" if mask & inotify.IS_FOLDER else path
        if not mask & inotify.CAME:
            self._note_left(name, mask)
        elif name != path:
            return self._note_folder(path)
        elif self._may_open(path):
            self._note_file(path)
            if mask != _LISTED:
                self._note_replaced(path)
        return ()

    def _note_left(self, name: str, mask: int) -> None:
        with self._lock:
            if name in self._came or mask & inotify.LEFT:
                self._last.pop(name, None)
            if mask & inotify.DELETED and name in self._came:
                self._deleted.append(name)
            self._came.discard(name)  # one that was moved away is found again

    def _note_folder(self, path: str) -> Iterable[tuple[int, str]]:
        """Watch a folder; return what is in it, as if that came after it."""
        is_shown = self._leads_to(path) and not self._selection.excludes(path)
        if not is_shown or Refusals().is_marked(path):
            return ()
        with self._lock:
            self._folders.add(path)
            self._inotify.add(path)
        with suppress(OSError), os.scandir(path) as entries:
            kinds = _LISTED, _LISTED | inotify.IS_FOLDER
            return [(kinds[one.is_dir(follow_symlinks=False)], one.path) for one in entries]
        with self._lock:
            self._came.add(f"{path}/")  # it is gone, and what was in it
        return ()

    def _may_open(self, path: str) -> bool:
        """Whether a file is to be opened; a rotated or compressed one is a copy, as a rule."""
        folder, _, name = path.rpartition("/")
        if name.endswith(COMPRESSED) or not self._selection.shows(path):
            return False
        return not any(os.path.lexists(f"{folder}/{one}") for one in live_names(name))

    def _note_replaced(self, path: str) -> None:
        """Note that another file was at a path before, if an event found the same one there."""
        seen = _Seen.at(path)
        with self._lock:
            if self._last.get(path) == seen:
                self._deleted.append(path)
            self._last[path] = seen

    def _note_file(self, path: str) -> None:
        arrival = None
        with suppress(OSError):  # it is gone, or a link that leads nowhere yet
            if len(self._open) < self._most and (arrival := _open(path)) is None:
                return
        with self._lock:
            if arrival is None or arrival.descriptor < 0:
                self._came.add(path)
            elif arrival.entry.key in self._open:
                close(arrival.descriptor)
            else:
                self._open[arrival.entry.key] = arrival


def _leads_of(glob: str) -> Iterator[str]:
    """Yield globs of the folders of a glob's files, and of those that may come above them."""
    lead, first = glob if glob.endswith("/**") else _home_of(glob), fixed_part(glob)
    yield lead
    while len(lead) > len(first):
        lead = _home_of(lead)
        yield lead


def _open(path: str) -> Arrival | None:
    """Open a file; return None if it is none, but a pipe or a folder, or one of the kernel.

    The descriptor is -1 if our programs write to its folder, or another file is there by now.
    Raises OSError.
    """
    status, real, refusals = os.stat(path), os.path.realpath(path), Refusals()  # noqa: PTH116
    if not stat.S_ISREG(status.st_mode) or refusals.is_pseudo(status.st_dev, path):
        return None
    key = FileKey(status.st_dev, status.st_ino)
    entry = FileEntry(path, real, path, key, status.st_size, status.st_mtime_ns, wanted=True)
    return Arrival(entry, -1 if any(refusals.owners(_home_of(real))) else open_file(entry))


def _home_of(path: str) -> str:
    return os.path.dirname(path.rstrip("/"))  # noqa: PTH120 - a path of any bytes
