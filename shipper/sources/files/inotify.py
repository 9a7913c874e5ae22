"""Watches folders by inotify; nothing here blocks."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants, Mask, WatchDescriptor

_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it: inotify(7)
_EVENTS = 256 * 1024  # bytes of events that are read at a time


class InotifyEvent(NamedTuple):
    """What happened, as a mask of inotify(7), to a name in a watched folder; b"": to itself."""

    mask: int
    watch: WatchDescriptor
    name: bytes


class Inotify:
    """One instance of inotify, which reports the events of `mask`. Serves one caller at a time."""

    def __init__(self, mask: int) -> None:
        self._shortage, self._taken = "", ""  # why not all can be watched; what was taken of it
        self.descriptor = -1
        self._mask = Mask(mask)
        self._watched: dict[WatchDescriptor, list[str]] = {}

    @property
    def watches(self) -> set[WatchDescriptor]:
        """The watches of the folders that were to be watched last."""
        return set(self._watched)

    def open(self) -> None:
        """Begin, with no folder."""
        self.descriptor = inotify_c.inotify_init()
        if self.descriptor < 0:
            reason = os.strerror(ctypes.get_errno())
            self._shortage = f"{reason}; raise fs.inotify.max_user_instances"
            return
        os.set_blocking(self.descriptor, False)
        os.set_inheritable(self.descriptor, False)

    def watch(self, folders: Iterable[str]) -> None:
        """Watch these folders and no others; those that are not there are left out."""
        before, self._watched = self._watched, {}
        for folder in folders:
            self.add(folder)
        for number in before.keys() - self._watched.keys():
            inotify_c.inotify_rm_watch(self.descriptor, number)

    def add(self, folder: str) -> None:
        """Watch one more folder, if it is there."""
        number = inotify_c.inotify_add_watch(self.descriptor, os.fsencode(folder), self._mask)
        if number >= 0:
            self._watched.setdefault(number, []).append(folder.rstrip("/"))
        elif (error := ctypes.get_errno()) == errno.ENOSPC:
            self._shortage = f"{os.strerror(error)}; raise fs.inotify.max_user_watches"

    def take_shortage(self) -> str:
        """Return why not everything can be watched, once; empty if nothing new is short."""
        before, self._taken = self._taken, self._shortage
        return "" if before == self._shortage else self._shortage

    def read(self) -> Iterator[InotifyEvent]:
        """Yield what happened since the last call, in order; some 2,000 events at a time."""
        events = b""
        with suppress(OSError):  # nothing has happened, or nothing is watched
            events = os.read(self.descriptor, _EVENTS)
        at = 0
        while at < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            yield InotifyEvent(mask, number, events[at - length : at].rstrip(b"\0"))

    def paths_of(self, event: InotifyEvent) -> list[str]:
        """Return the paths of an event's name: one folder may be watched by several paths."""
        name = os.fsdecode(event.name)
        return [f"{home}/{name}" for home in self._watched.get(event.watch, ())]

    def close(self) -> None:
        """End."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


CAME = InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO
LEFT = InotifyConstants.IN_MOVED_FROM
DELETED = InotifyConstants.IN_DELETE
WRITTEN = InotifyConstants.IN_MODIFY
OVERFLOW = InotifyConstants.IN_Q_OVERFLOW
IS_FOLDER = InotifyConstants.IN_ISDIR
_ITSELF = InotifyConstants.IN_DELETE_SELF | InotifyConstants.IN_MOVE_SELF
ANY = CAME | LEFT | DELETED | WRITTEN | InotifyConstants.IN_ATTRIB | _ITSELF
"""The events that ask for a scan or, as writes do, for reading."""
NO_CHANGE = WRITTEN | InotifyConstants.IN_IGNORED
"""The events that ask for no scan."""
