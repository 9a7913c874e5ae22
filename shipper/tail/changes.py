"""Notices changes of followed files and folders. Reads no file; says which files may have something to read.

    watched   every folder, by inotify where it can be had: each write to a file in it, each file that comes, goes or is renamed
    polled    all, by a scan each `poll_every` seconds: size and time of change

No promise rests on inotify, which tells nothing of what other machines write. What it misses, polling finds.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants, Mask, WatchDescriptor

from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.scan import FileEntry, FileKey

_PAUSE = 0.1  # seconds from one wake-up to the next, however many write
_READ_SHARE = 20  # reading events takes one part in so many of a core at most
_POLL_SHARE = 100  # a poll does

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
        self, heard: Callable[[Collection[FileKey], bool], None], poll_every: float, listen: bool
    ) -> None:
        """Follow nothing yet; `poll_every` is in seconds; without `listen` only poll."""
        self._heard = heard
        self._poll_every = poll_every
        self._listens = listen
        self._inotify = -1
        self._shortage = ""
        self._watched: dict[WatchDescriptor, list[str]] = {}
        self._files: dict[str, FileKey] = {}
        self._next_poll = 0.0

    @property
    def patience(self) -> float:
        """After how many seconds to ask again though nothing was heard."""
        return max(0.0, self._next_poll - _now())

    async def follow(
        self, folders: Sequence[str], entries: Iterable[FileEntry], took: float
    ) -> list[Notice]:
        """Follow these folders and files and no others, which a scan of `took` seconds found; return what there is to say."""
        known, shortage = set(self._files.values()), self._shortage
        if self._listens and self._inotify < 0:
            self._open()
        self._files = {entry.real: entry.key for entry in entries}
        watched = set(self._watched)
        if self._inotify >= 0:
            await asyncio.to_thread(self._watch, folders)
        # a write to a new file, or in a new folder, before this was not heard
        is_new = not known.issuperset(self._files.values()) or not watched.issuperset(self._watched)
        self._next_poll = _now() + (0 if is_new else max(self._poll_every, _POLL_SHARE * took))
        if shortage or not self._shortage:
            return []
        text = f"not all of it can be watched, the rest is polled: {self._shortage}"
        return [Notice(NoticeKind.UNWATCHED, next(iter(folders), "/"), text)]

    def hear(self) -> None:
        """Hear of what has happened, and that a scan is due where it is time to poll."""
        self._read()
        if _now() >= self._next_poll:
            self._next_poll = _now() + self._poll_every
            self._heard((), True)

    def close(self) -> None:
        """Stop watching."""
        self._listens = False
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
        self._inotify = -1

    def _open(self) -> None:
        self._inotify = inotify_c.inotify_init()
        if self._inotify < 0:
            self._shortage = f"{_last_error().strerror}; raise fs.inotify.max_user_instances"
            return
        os.set_blocking(self._inotify, False)
        os.set_inheritable(self._inotify, False)
        self._listen()

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


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _now() -> float:
    return asyncio.get_running_loop().time()
