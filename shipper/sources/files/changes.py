"""Watches followed files and folders by inotify: writes, and files that come, go or are renamed.

No promise depends on inotify, which does not report what other machines write: everything is
scanned every `poll_every` seconds as well.
"""

import asyncio
import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants, Mask, WatchDescriptor

from shipper.sources.files.identity import FileEntry, FileKey
from shipper.sources.files.passing import PassingFiles
from shipper.sources.notices import Notice, NoticeKind

_PAUSE = 0.1  # seconds between two wake-ups, however many writes there are
_POLL_SHARE = 100  # scans by polling take 1/100 of a core at most

_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it: inotify(7)
_EVENTS = 256 * 1024  # bytes of events that are read at a time
_MASK = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_MODIFY
)
_NO_CHANGE = Mask(InotifyConstants.IN_MODIFY | InotifyConstants.IN_IGNORED)


class ChangeDetection:
    """Calls `wake_up` on the event loop on any change; another thread may watch and read events."""

    def __init__(self, wake_up: Callable[[], object], poll_every: float, listen: bool) -> None:
        """Watch nothing yet; `poll_every` is in seconds; without `listen` only poll."""
        self._wake_up = wake_up
        self._poll_every = poll_every
        self._listens = listen
        self._inotify = -1
        self._is_awaited = False
        self._silent_until = 0.0  # by the clock of the event loop
        self._shortage = ""
        self.passing = PassingFiles()
        self._watched: dict[WatchDescriptor, list[str]] = {}
        self._files: dict[str, FileKey] = {}
        self._next_poll = 0.0

    @property
    def poll_in(self) -> float:
        """The seconds after which to read events again even if nothing changes."""
        return max(0.0, self._next_poll - time.monotonic())

    def watch(
        self, folders: Sequence[str], entries: Iterable[FileEntry], took: float
    ) -> list[Notice]:
        """Watch these folders and files and no others; return what is to be reported.

        A scan of `took` seconds found them.
        """
        before, watched, shortage = set(self._files.values()), set(self._watched), self._shortage
        self._files = {entry.real: entry.key for entry in entries}
        self._watch(folders)
        # a write to a new file, or in a new folder, before this was not reported
        is_new = not (before.issuperset(self._files.values()) and watched.issuperset(self._watched))
        every = 0 if is_new else max(self._poll_every, _POLL_SHARE * took)
        self._next_poll = time.monotonic() + every
        if shortage or not self._shortage:
            return []
        text = f"not all of it can be watched, the rest is polled: {self._shortage}"
        return [Notice(NoticeKind.UNWATCHED, next(iter(folders), "/"), text)]

    def listen(self) -> None:
        """Open inotify, unless it is open, or changes are only polled."""
        if self._inotify >= 0 or not self._listens:
            return
        self._inotify = inotify_c.inotify_init()
        if self._inotify < 0:
            reason = os.strerror(ctypes.get_errno())
            self._shortage = f"{reason}; raise fs.inotify.max_user_instances"
            return
        os.set_blocking(self._inotify, False)
        os.set_inheritable(self._inotify, False)

    def await_change(self) -> None:
        """Have `wake_up` called once at the next change, or one since events were read last."""
        if self._is_awaited or self._inotify < 0:
            return
        self._is_awaited, loop = True, asyncio.get_running_loop()
        if loop.time() >= self._silent_until:
            self._await()
        else:
            loop.call_at(self._silent_until, self._await)

    def read_events(self) -> tuple[list[FileKey], bool]:
        """Return the files that were written to since the last call, and whether a scan is due.

        A scan is due after an event that is no write, and when the poll interval is over.
        """
        events = b""
        with suppress(OSError):  # nothing has happened, or nothing is watched
            events = os.read(self._inotify, _EVENTS)
        paths, is_due = self._parse(events)
        if time.monotonic() >= self._next_poll:
            self._next_poll, is_due = time.monotonic() + self._poll_every, True
        return [self._files[path] for path in paths if path in self._files], is_due

    def close(self) -> None:
        """Stop watching."""
        self._listens = False
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
        self._inotify = -1

    def _watch(self, folders: Sequence[str]) -> None:
        before, now = self._watched, dict[WatchDescriptor, list[str]]()
        for folder in folders:
            number = inotify_c.inotify_add_watch(self._inotify, os.fsencode(folder), _MASK)
            if number >= 0:
                now.setdefault(number, []).append(folder.rstrip("/"))
            elif (error := ctypes.get_errno()) == errno.ENOSPC:
                self._shortage = f"{os.strerror(error)}; raise fs.inotify.max_user_watches"
        self._watched = now
        for number in before.keys() - now.keys():
            inotify_c.inotify_rm_watch(self._inotify, number)

    def _await(self) -> None:
        if self._inotify >= 0:
            asyncio.get_running_loop().add_reader(self._inotify, self._note_change)

    def _note_change(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify)
        self._is_awaited, self._silent_until = False, loop.time() + _PAUSE
        self._wake_up()

    def _parse(self, events: bytes) -> tuple[set[str], bool]:
        """Return the files that were written to, and whether anything else happened."""
        names: set[tuple[WatchDescriptor, bytes]] = set()
        is_due, at = False, 0
        while at < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            if mask & InotifyConstants.IN_MODIFY:
                names.add((number, events[at - length : at]))
            elif length:
                self._note_passing(mask, number, events[at - length : at])
            is_due |= not mask & _NO_CHANGE
        # an event may come before its watch is known here
        is_due |= any(number not in self._watched for number, _ in names)
        written = {path for number, name in names for path in self._paths_of(number, name)}
        return written, is_due

    def _paths_of(self, number: WatchDescriptor, name: bytes) -> list[str]:
        text = os.fsdecode(name.rstrip(b"\0"))
        return [f"{home}/{text}" for home in self._watched.get(number, ())]

    def _note_passing(self, mask: int, number: WatchDescriptor, name: bytes) -> None:
        slash = "/" if mask & InotifyConstants.IN_ISDIR else ""
        for path in (f"{one}{slash}" for one in self._paths_of(number, name)):
            if mask & (InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO):
                self.passing.note_came(path)
            elif mask & InotifyConstants.IN_MOVED_FROM:
                self.passing.note_moved(path)
            elif mask & InotifyConstants.IN_DELETE:
                self.passing.note_deleted(path)
