"""Notices changes of followed files and folders. Reads no file; says which tailers may have something to read.

    polled    every folder and every file, each `poll_every` seconds: size and time of change
    watched   by inotify, where it can be had, so that a change is noticed sooner: a folder while it is followed,
              a file until its next write
    growing   a file that was written to on this machine within the last second: its size is looked at every tick,
              since an event for each write would cost more than shipping the line; not on a network file system

No promise rests on inotify, which tells nothing of what other machines write. What it misses, polling finds.
"""

import asyncio
import ctypes
import errno
import math
import os
import struct
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants, Mask, WatchDescriptor

from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.open_files import Handles
from shipper.tail.scan import FileKey
from shipper.tail.tailer import Tailer

__all__ = ["ChangeDetection", "remote_devices"]

Heard = Callable[[Collection[FileKey], bool], None]

_QUIET = 1.0  # seconds without growth, after which a file is watched again
_TICK = 0.05  # seconds between two looks at growing files
_TICK_SHARE = 20  # a look at growing files takes one part in so many of a core at most
_POLL_SHARE = 100  # a poll does
_COARSE = 20_000_000  # nanoseconds; file systems keep time by the tick of the kernel

_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = {
    *(
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "afs",
        "9p",
        "virtiofs",
        "ceph",
        "glusterfs",
        "lustre",
        "gfs2",
        "ocfs2",
    ),
    *("gpfs", "beegfs", "orangefs", "vboxsf", "vmhgfs", "prl_fs", "fuse"),
}
"""File systems that another machine or program serves."""

_IN_FOLDER = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
)
_NEXT_WRITE = Mask(InotifyConstants.IN_MODIFY | InotifyConstants.IN_ONESHOT)
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it: inotify(7)


class Inotify:
    """One inotify descriptor, read by the event loop; watches are known by device and inode.

    `heard(files, moved)` is called with the files that were written to; `moved`: anything else happened, or may have.
    `shortage` says why something cannot be watched, and what to do.
    """

    def __init__(self, heard: Heard) -> None:
        self.shortage = ""
        self._heard = heard
        self._descriptor = -1
        self._has_overflowed = False
        self._numbers: dict[FileKey, WatchDescriptor] = {}
        self._keys: dict[WatchDescriptor, FileKey] = {}

    def __contains__(self, key: FileKey) -> bool:
        return key in self._numbers

    def open(self) -> None:
        """Open the descriptor, if it is not open; without one nothing is watched.

        After an overflow of the kernel's queue a new one is needed: nobody knows which watches have ended.
        """
        if self._has_overflowed:
            self.close()
        if self._descriptor >= 0:
            return
        self._descriptor = inotify_c.inotify_init()
        if self._descriptor < 0:
            self.shortage = f"{_last_error().strerror}; raise fs.inotify.max_user_instances"
            return
        os.set_blocking(self._descriptor, False)
        os.set_inheritable(self._descriptor, False)
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def watch(self, path: str, key: FileKey, mask: Mask) -> os.stat_result | None:
        """Watch the file at a path, and return its status after that; None when it cannot be, or is another file.

        Runs in a thread, so the loop may read an event before its watch is known here, and pass over it. A write that
        came so early has changed the size meanwhile: the watch has ended.
        """
        if self._descriptor < 0:
            return None
        try:
            descriptor = os.open(path, os.O_PATH)
        except OSError:
            return None
        try:
            before = os.fstat(descriptor)
            if FileKey.of(before) != key or not self._add(f"/proc/self/fd/{descriptor}", key, mask):
                return None
            after = os.fstat(descriptor)
        except OSError:  # a file server has forgotten it
            return None
        finally:
            os.close(descriptor)
        if mask == _NEXT_WRITE and after.st_size != before.st_size:
            self._drop(key)
        return after

    def keep(self, keys: Container[FileKey]) -> None:
        """Drop all watches but these."""
        for key in list(self._numbers):
            if key not in keys:
                self._drop(key)

    def close(self) -> None:
        """Drop all watches."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = -1
        self._has_overflowed = False
        self._numbers, self._keys = {}, {}

    def _add(self, path: str, key: FileKey, mask: Mask) -> bool:
        number = inotify_c.inotify_add_watch(self._descriptor, path.encode(), mask)
        if number < 0:
            if (error := _last_error()).errno == errno.ENOSPC:
                self.shortage = f"{error.strerror}; raise fs.inotify.max_user_watches"
            return False
        self._numbers[key], self._keys[number] = number, key
        return True

    def _drop(self, key: FileKey) -> None:
        if (number := self._numbers.pop(key, None)) is not None:
            self._keys.pop(number, None)
            inotify_c.inotify_rm_watch(self._descriptor, number)

    def _read(self) -> None:
        files: set[FileKey] = set()
        has_moved = False
        events, at = os.read(self._descriptor, 1 << 16), 0
        while at < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            key = self._keys.get(number)
            if mask & InotifyConstants.IN_IGNORED:
                if key is not None:
                    del self._keys[number], self._numbers[key]
            elif mask & InotifyConstants.IN_MODIFY:
                files.update(() if key is None else (key,))
            else:
                has_moved = True
                self._has_overflowed |= bool(mask & InotifyConstants.IN_Q_OVERFLOW)
        if files or has_moved:
            self._heard(files, has_moved)


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
        self._growing: dict[FileKey, float] = {}
        self._remote: frozenset[int] = frozenset()
        self._next_tick = self._next_poll = 0.0
        self._has_warned = False

    @property
    def patience(self) -> float:
        """After how many seconds to ask again though nothing was heard."""
        now = _now()
        tick = max(_TICK, self._next_tick - now) if self._growing else math.inf
        return min(tick, max(0.0, self._next_poll - now))

    def is_growing(self, key: FileKey) -> bool:
        """Whether a file was heard to grow: what was written last is in memory, of this machine."""
        return key in self._growing

    async def follow(
        self, folders: Iterable[str], tailers: Mapping[FileKey, Tailer], listed: int
    ) -> list[Notice]:
        """Follow these folders and files and no others; the folders were listed at `listed`, in nanoseconds."""
        if self._listens:
            self._inotify.open()
        paths = tuple(folders)
        has_moved = await asyncio.to_thread(self._follow_folders, paths, listed)
        self._inotify.keep({*tailers, *(key for key, _ in self._folders.values())})
        grown = await self._watch([t for k, t in tailers.items() if k not in self._growing])
        if grown or has_moved:
            self._notify(grown, has_moved)
        if self._has_warned or not (shortage := self._inotify.shortage):
            return []
        self._has_warned = True
        text = f"not all of it can be watched, the rest is polled: {shortage}"
        return [Notice(NoticeKind.UNWATCHED, next(iter(paths), "/"), text)]

    async def changed_files(self, tailers: Mapping[FileKey, Tailer]) -> list[FileKey]:
        """Return the files that look as if there was something to read, of those that are due."""
        grown: list[FileKey] = []
        if self._growing and _now() >= self._next_tick:
            grown += await self._look_at_growing(tailers)
        if (now := _now()) >= self._next_poll:
            quiet = [tailer for key, tailer in tailers.items() if key not in self._growing]
            polled, have_moved = await asyncio.to_thread(self._poll, quiet)
            self._next_poll = now + max(self._poll_every, _POLL_SHARE * (_now() - now))
            grown += polled
            if have_moved:
                self._notify((), True)
        return grown

    async def close(self) -> None:
        """Stop watching."""
        self._listens = False
        self._inotify.close()

    def _hear(self, files: Collection[FileKey], moved: bool) -> None:
        # a server that hangs must not hold up the event loop: its files are read and polled in a thread
        local = (key for key in files if key.device not in self._remote)
        self._growing.update(dict.fromkeys(local, _now() + _QUIET))
        self._notify(files, moved)

    def _follow_folders(self, paths: Sequence[str], listed: int) -> bool:
        """Note the folders, in a thread; return whether one changed after it was listed and before it was watched."""
        before, self._folders = self._folders, {}
        with suppress(OSError):
            self._remote = remote_devices(_MOUNTS.read_text(errors="replace"))
        has_moved = False
        for path in paths:
            if (status := _status(path)) is None:
                continue
            key = FileKey.of(status)
            is_watched = key in self._inotify
            if not is_watched:
                status = self._inotify.watch(path, key, _IN_FOLDER) or status
            seen = self._folders[path] = key, status.st_mtime_ns
            is_late = status.st_mtime_ns > listed - _COARSE
            has_moved |= is_late and not is_watched and seen != before.get(path)
        return has_moved

    async def _watch(self, tailers: Iterable[Tailer]) -> list[FileKey]:
        """Watch files for their next write; return those that have grown since they were read."""
        unwatched = [tailer for tailer in tailers if tailer.entry.key not in self._inotify]
        return await asyncio.to_thread(self._watch_all, unwatched) if unwatched else []

    def _watch_all(self, tailers: Sequence[Tailer]) -> list[FileKey]:
        grown = []
        for tailer in tailers:
            descriptor = self._handles.opened(tailer.entry.key)
            path = tailer.entry.real if descriptor is None else f"/proc/self/fd/{descriptor}"
            status = self._inotify.watch(path, tailer.entry.key, _NEXT_WRITE)
            if status is not None and _has_grown(tailer, status):
                grown.append(tailer.entry.key)
        return grown

    async def _look_at_growing(self, tailers: Mapping[FileKey, Tailer]) -> list[FileKey]:
        now = _now()
        grown, quiet = [], []
        for key, until in list(self._growing.items()):
            tailer = tailers.get(key)
            if tailer is None:
                del self._growing[key]
            elif tailer.dirty or tailer.suspect:
                continue  # it is read first
            elif self._differs(tailer):
                grown.append(key)
            elif now >= until:
                del self._growing[key]
                quiet.append(tailer)
        self._next_tick = now + _TICK_SHARE * (_now() - now)
        grown += await self._watch(quiet)
        self._growing.update(dict.fromkeys(grown, now + _QUIET))
        return grown

    def _poll(self, tailers: Sequence[Tailer]) -> tuple[list[FileKey], bool]:
        """Return which files have grown, and whether a folder has changed, in a thread."""
        before = self._folders
        found = {path: _status(path) for path in before}
        self._folders = {path: (FileKey.of(s), s.st_mtime_ns) for path, s in found.items() if s}
        grown = [tailer.entry.key for tailer in tailers if self._differs(tailer)]
        return grown, self._folders != before

    def _differs(self, tailer: Tailer) -> bool:
        descriptor = self._handles.opened(tailer.entry.key)
        status = _status(tailer.entry.real if descriptor is None else descriptor)
        return status is not None and _has_grown(tailer, status)


def remote_devices(mountinfo: str) -> frozenset[int]:
    """Return the devices of file systems that another machine or program serves.

    `mountinfo` is the text of /proc/self/mountinfo (proc(5)): the device is the third field, and the type the first
    behind a lone `-`.
    """
    remote = set()
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.partition(" ")[0]
        if len(fields) > 2 and (kind in _REMOTE or kind.startswith("fuse.")):
            major, minor = map(int, fields[2].split(":"))
            remote.add(os.makedev(major, minor))
    return frozenset(remote)


def _status(target: str | int) -> os.stat_result | None:
    try:
        return os.stat(target)  # noqa: PTH116 - a descriptor, or one of thousands of paths
    except OSError:
        return None


def _has_grown(tailer: Tailer, status: os.stat_result) -> bool:
    # what is to be read, or to be scanned, is known already; another file at the path is no sign of growth
    if tailer.dirty or tailer.suspect or FileKey.of(status) != tailer.entry.key:
        return False
    return tailer.differs(status.st_size, status.st_mtime_ns)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _now() -> float:
    return asyncio.get_running_loop().time()
