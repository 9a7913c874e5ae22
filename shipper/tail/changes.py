"""Notices changes of followed files and folders. Reads no file; says which files may have something to read.

    watched   every folder, by inotify where it can be had: each write to a file in it, each file that comes, goes or is renamed
    polled    every folder and every file, each `poll_every` seconds: size and time of change

No promise rests on inotify, which tells nothing of what other machines write. What it misses, polling finds.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants, Mask, WatchDescriptor

from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.scan import FileKey
from shipper.tail.tailer import Tailer

_PAUSE = 0.1  # seconds from one wake-up to the next, however many write
_READ_SHARE = 20  # reading events takes one part in so many of a core at most
_POLL_SHARE = 100  # a poll does
_COARSE = 20_000_000  # nanoseconds; file systems keep time by the tick of the kernel

_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it: inotify(7)
_EVENTS = 256 * 1024  # bytes of events that are read at a time
_NAMES = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_MASK_ADD
)
_NAMES_AND_WRITES = Mask(_NAMES | InotifyConstants.IN_MODIFY)
_NO_CHANGE = Mask(InotifyConstants.IN_MODIFY | InotifyConstants.IN_IGNORED)


class ChangeDetection:
    """Notices changes of all that is followed; one task at a time may follow or ask.

    `heard(files, moved)` is called on the loop: files that were written to, and whether a scan is due.
    """

    def __init__(
        self,
        heard: Callable[[Collection[FileKey], bool], None],
        opened: Callable[[FileKey], int | None],
        poll_every: float,
        listen: bool,
    ) -> None:
        """Follow nothing yet; `poll_every` is in seconds; without `listen` only poll."""
        self._heard = heard
        self._opened = opened
        self._poll_every = poll_every
        self._listens = listen
        self._inotify = -1
        self._shortage = ""
        self._watched: dict[WatchDescriptor, list[str]] = {}
        self._folders: dict[str, tuple[FileKey, int] | None] = {}
        self._files: dict[str, FileKey] = {}
        self._next_poll = 0.0

    @property
    def patience(self) -> float:
        """After how many seconds to ask again though nothing was heard."""
        return max(0.0, self._next_poll - _now())

    async def follow(
        self, folders: Iterable[str], tailers: Mapping[FileKey, Tailer], listed: int
    ) -> list[Notice]:
        """Follow these folders and files and no others; the folders were listed at `listed`, in nanoseconds."""
        paths, known, shortage = tuple(folders), set(self._files.values()), self._shortage
        if self._listens and self._inotify < 0:
            self._open()
        seen = (tailer.entry for tailer in tailers.values() if tailer.unseen_since is None)
        self._files = {entry.real: entry.key for entry in seen}
        has_moved = await asyncio.to_thread(self._follow_folders, paths, listed)
        if not known.issuperset(self._files.values()):
            self._next_poll = 0.0  # a write to a new file, before this, was not heard
        if has_moved:
            self._heard((), True)
        if shortage or not self._shortage:
            return []
        text = f"not all of it can be watched, the rest is polled: {self._shortage}"
        return [Notice(NoticeKind.UNWATCHED, next(iter(paths), "/"), text)]

    async def changed_files(self, tailers: Mapping[FileKey, Tailer]) -> Sequence[FileKey]:
        """Hear of what has happened; poll, if that is due, and return the files that look as if there was something to read."""
        self._read()
        if (now := _now()) < self._next_poll:
            return ()
        grown, have_moved = await asyncio.to_thread(self._poll, list(tailers.values()))
        self._next_poll = now + max(self._poll_every, _POLL_SHARE * (_now() - now))
        if have_moved:
            self._heard((), True)
        return grown

    def close(self) -> None:
        """Stop watching."""
        self._listens = False
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
        self._inotify = -1

    # watching

    def _open(self) -> None:
        self._inotify = inotify_c.inotify_init()
        if self._inotify < 0:
            self._shortage = f"{_last_error().strerror}; raise fs.inotify.max_user_instances"
            return
        os.set_blocking(self._inotify, False)
        os.set_inheritable(self._inotify, False)
        self._listen()

    def _follow_folders(self, paths: Sequence[str], listed: int) -> bool:
        """Watch the folders, in a thread; return whether one changed after it was listed and before it was watched."""
        if self._inotify >= 0:
            self._watch(paths)
        before, self._folders = self._folders, _states(paths)
        changed = (state for path, state in self._folders.items() if state != before.get(path))
        return any(state is not None and state[1] > listed - _COARSE for state in changed)

    def _watch(self, paths: Sequence[str]) -> None:
        homes = {path.rpartition("/")[0] for path in self._files}
        before, now = self._watched, dict[WatchDescriptor, list[str]]()
        for folder in paths:
            prefix = folder.rstrip("/")
            mask = _NAMES_AND_WRITES if prefix in homes else _NAMES
            number = inotify_c.inotify_add_watch(self._inotify, os.fsencode(folder), mask)
            if number >= 0:
                now.setdefault(number, []).append(prefix)
            elif (error := _last_error()).errno == errno.ENOSPC:
                self._shortage = f"{error.strerror}; raise fs.inotify.max_user_watches"
        self._watched = now
        for number in before.keys() - now.keys():
            inotify_c.inotify_rm_watch(self._inotify, number)

    def _listen(self) -> None:
        if self._inotify >= 0:
            asyncio.get_running_loop().add_reader(self._inotify, self._wake_up)

    def _wake_up(self) -> None:
        loop, began = asyncio.get_running_loop(), _now()
        self._read()
        loop.remove_reader(self._inotify)
        loop.call_later(max(_PAUSE, _READ_SHARE * (_now() - began)), self._listen)

    def _read(self) -> None:
        with suppress(OSError):  # nothing has happened, or nothing is watched
            paths, has_moved = self._parse(os.read(self._inotify, _EVENTS))
            files = [self._files[path] for path in paths if path in self._files]
            if files or has_moved:
                self._heard(files, has_moved)

    def _parse(self, events: bytes) -> tuple[set[str], bool]:
        """Return the files that were written to, and whether anything else happened."""
        names: set[tuple[WatchDescriptor, bytes]] = set()
        has_moved, at = False, 0
        while at < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            if mask & InotifyConstants.IN_MODIFY:
                names.add((number, events[at - length : at]))
            has_moved |= not mask & _NO_CHANGE
        # an event may come before its watch is known here
        has_moved |= any(number not in self._watched for number, _ in names)
        found = ((os.fsdecode(name.rstrip(b"\0")), number) for number, name in names)
        files = {f"{folder}/{name}" for name, n in found for folder in self._watched.get(n, ())}
        return files, has_moved

    # polling

    def _poll(self, tailers: Sequence[Tailer]) -> tuple[list[FileKey], bool]:
        """Return which files have grown, and whether a folder has changed, in a thread."""
        before, self._folders = self._folders, _states(self._folders)
        grown = [tailer.entry.key for tailer in tailers if self._has_grown(tailer)]
        return grown, self._folders != before

    def _has_grown(self, tailer: Tailer) -> bool:
        # what is to be read, or to be scanned, is known already; another file at the path is no sign of growth
        if tailer.dirty or tailer.suspect:
            return False
        descriptor = self._opened(tailer.entry.key)
        status = _status(tailer.entry.real if descriptor is None else descriptor)
        if status is None or FileKey.of(status) != tailer.entry.key:
            return False
        return tailer.differs(status.st_size, status.st_mtime_ns)


def _states(folders: Iterable[str]) -> dict[str, tuple[FileKey, int] | None]:
    found = ((path, _status(path)) for path in folders)
    return {path: (FileKey.of(s), s.st_mtime_ns) if s else None for path, s in found}


def _status(target: str | int) -> os.stat_result | None:
    with suppress(OSError):
        return os.stat(target)  # noqa: PTH116 - a descriptor, or one of thousands of paths
    return None


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _now() -> float:
    return asyncio.get_running_loop().time()
