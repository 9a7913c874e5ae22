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
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants, Mask, WatchDescriptor

from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.open_files import Handles
from shipper.tail.scan import FileKey
from shipper.tail.tailer import Tailer

__all__ = ["ChangeDetection"]

Heard = Callable[[Collection[FileKey], bool], None]

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


class Inotify:
    """One inotify descriptor, which the event loop reads; it watches folders.

    `heard(paths, moved)` is called with the files that were written to; `moved`: anything else happened, or may have.
    `shortage` says why something cannot be watched, and what to do.
    """

    def __init__(self, heard: Callable[[Collection[str], bool], None]) -> None:
        self.shortage = ""
        self._heard = heard
        self._descriptor = -1
        self._folders: dict[WatchDescriptor, list[str]] = {}

    def open(self) -> None:
        """Open the descriptor, if it is not open; without one nothing is watched."""
        if self._descriptor >= 0:
            return
        self._descriptor = inotify_c.inotify_init()
        if self._descriptor < 0:
            self.shortage = f"{_last_error().strerror}; raise fs.inotify.max_user_instances"
            return
        os.set_blocking(self._descriptor, False)
        os.set_inheritable(self._descriptor, False)
        self._listen()

    def watch(self, folders: Iterable[str], homes: Container[str]) -> None:
        """Watch these folders and no others, in a thread; of `homes`, which hold followed files, each write is heard."""
        if self._descriptor < 0:
            return
        before, now = self._folders, dict[WatchDescriptor, list[str]]()
        for folder in folders:
            prefix = folder.rstrip("/")
            mask = _NAMES_AND_WRITES if prefix in homes else _NAMES
            number = inotify_c.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
            if number >= 0:
                now.setdefault(number, []).append(prefix)
            elif (error := _last_error()).errno == errno.ENOSPC:
                self.shortage = f"{error.strerror}; raise fs.inotify.max_user_watches"
        self._folders = now
        for number in before.keys() - now.keys():
            inotify_c.inotify_rm_watch(self._descriptor, number)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = -1

    def _listen(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._wake_up)

    def _wake_up(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.read()
        loop.remove_reader(self._descriptor)
        loop.call_later(max(_PAUSE, _READ_SHARE * (loop.time() - began)), self._listen)

    def read(self) -> None:
        """Hear of what has happened by now."""
        with suppress(OSError):  # nothing has
            files, has_moved = self._parse(os.read(self._descriptor, _EVENTS))
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
        has_moved |= any(number not in self._folders for number, _ in names)
        found = ((os.fsdecode(name.rstrip(b"\0")), number) for number, name in names)
        files = {f"{folder}/{name}" for name, n in found for folder in self._folders.get(n, ())}
        return files, has_moved


class ChangeDetection:
    """Notices changes of all that is followed; one task at a time may follow or ask."""

    def __init__(self, handles: Handles, heard: Heard, poll_every: float, listen: bool) -> None:
        """Follow nothing yet; `poll_every` is in seconds; without `listen` only poll.

        `heard(files, moved)` is called on the loop: files that were written to, and whether a scan is due.
        """
        self._handles = handles
        self._notify = heard
        self._poll_every = poll_every
        self._listens = listen
        self._inotify = Inotify(self._hear)
        self._folders: dict[str, tuple[FileKey, int]] = {}
        self._files: dict[str, FileKey] = {}
        self._next_poll = 0.0
        self._has_warned = False

    @property
    def patience(self) -> float:
        """After how many seconds to ask again though nothing was heard."""
        return max(0.0, self._next_poll - _now())

    async def follow(
        self, folders: Iterable[str], tailers: Mapping[FileKey, Tailer], listed: int
    ) -> list[Notice]:
        """Follow these folders and files and no others; the folders were listed at `listed`, in nanoseconds."""
        if self._listens:
            self._inotify.open()
        paths, known = tuple(folders), set(self._files.values())
        seen = (tailer.entry for tailer in tailers.values() if tailer.unseen_since is None)
        self._files = {entry.real: entry.key for entry in seen}
        has_moved = await asyncio.to_thread(self._follow_folders, paths, listed)
        if not known.issuperset(self._files.values()):
            self._next_poll = 0.0  # a write to a new file, before this, was not heard
        if has_moved:
            self._notify((), True)
        if self._has_warned or not (shortage := self._inotify.shortage):
            return []
        self._has_warned = True
        text = f"not all of it can be watched, the rest is polled: {shortage}"
        return [Notice(NoticeKind.UNWATCHED, next(iter(paths), "/"), text)]

    async def changed_files(self, tailers: Mapping[FileKey, Tailer]) -> Sequence[FileKey]:
        """Hear of what has happened; poll, if that is due, and return the files that look as if there was something to read."""
        self._inotify.read()
        if (now := _now()) < self._next_poll:
            return ()
        grown, have_moved = await asyncio.to_thread(self._poll, list(tailers.values()))
        self._next_poll = now + max(self._poll_every, _POLL_SHARE * (_now() - now))
        if have_moved:
            self._notify((), True)
        return grown

    async def close(self) -> None:
        """Stop watching."""
        self._listens = False
        self._inotify.close()

    def _hear(self, paths: Collection[str], moved: bool) -> None:
        files = [self._files[path] for path in paths if path in self._files]
        if files or moved:
            self._notify(files, moved)

    def _follow_folders(self, paths: Sequence[str], listed: int) -> bool:
        """Note the folders, in a thread; return whether one changed after it was listed and before it was watched."""
        self._inotify.watch(paths, {path.rpartition("/")[0] for path in self._files})
        before, self._folders = self._folders, _states(paths)
        changed = (state for path, state in self._folders.items() if state != before.get(path))
        return any(modified > listed - _COARSE for _, modified in changed)

    def _poll(self, tailers: Sequence[Tailer]) -> tuple[list[FileKey], bool]:
        """Return which files have grown, and whether a folder has changed, in a thread."""
        before, self._folders = self._folders, _states(self._folders)
        grown = [tailer.entry.key for tailer in tailers if self._has_grown(tailer)]
        return grown, self._folders != before

    def _has_grown(self, tailer: Tailer) -> bool:
        # what is to be read, or to be scanned, is known already; another file at the path is no sign of growth
        if tailer.dirty or tailer.suspect:
            return False
        descriptor = self._handles.opened(tailer.entry.key)
        status = _status(tailer.entry.real if descriptor is None else descriptor)
        if status is None or FileKey.of(status) != tailer.entry.key:
            return False
        return tailer.differs(status.st_size, status.st_mtime_ns)


def _states(folders: Iterable[str]) -> dict[str, tuple[FileKey, int]]:
    found = {path: _status(path) for path in folders}
    return {path: (FileKey.of(s), s.st_mtime_ns) for path, s in found.items() if s}


def _status(target: str | int) -> os.stat_result | None:
    try:
        return os.stat(target)  # noqa: PTH116 - a descriptor, or one of thousands of paths
    except OSError:
        return None


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _now() -> float:
    return asyncio.get_running_loop().time()
