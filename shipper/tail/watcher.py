"""Watches directories and files with inotify: what came, went or was renamed, and which files were written to.

Reports what was heard and what cannot be heard; decides nothing. A file that was heard is not watched any more until
that is asked for again, so a busy one costs nothing here.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.scan import FileKey

__all__ = [
    "Folder",
    "Glimpse",
    "Heard",
    "Inotify",
    "Seen",
    "Target",
    "Unheard",
    "Watcher",
    "folder_at",
    "glimpse",
    "silent_devices",
]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """`size` in bytes, `modified` in nanoseconds since the epoch."""

    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Target:
    """A file to look at: by its path or, when it is open, by its descriptor, wherever it stands by now."""

    key: FileKey
    path: str
    descriptor: int | None = None

    @property
    def reach(self) -> str:
        """A path that leads to the file (proc(5)) or, when it is not open, to where it was seen."""
        return self.path if self.descriptor is None else f"/proc/self/fd/{self.descriptor}"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as it was seen; `changed` is when files came or went in it last, in nanoseconds since the epoch."""

    key: FileKey
    path: str
    changed: int


def glimpse(target: Target) -> Glimpse | None:
    """Return how large a file is; None when another one, or none, stands where it was seen."""
    try:
        status = os.stat(target.path if target.descriptor is None else target.descriptor)  # noqa: PTH116 - thousands
    except OSError:
        return None
    if FileKey(status.st_dev, status.st_ino) != target.key:
        return None
    return Glimpse(status.st_size, status.st_mtime_ns)


def folder_at(path: str) -> Folder | None:
    """Return what stands at a path; None when nothing does."""
    try:
        status = os.stat(path)  # noqa: PTH116 - one call less for each of many folders
    except OSError:
        return None
    return Folder(FileKey(status.st_dev, status.st_ino), path, status.st_mtime_ns)


# another machine, or the host of a virtual one, may write to these without this kernel hearing of it
_SILENT = {
    *("nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "virtiofs"),
    *("ceph", "glusterfs", "lustre", "gfs2", "ocfs2", "gpfs", "beegfs", "orangefs", "pvfs2"),
    *("vboxsf", "vmhgfs", "prl_fs", "fuse"),
}


def silent_devices(mountinfo: str) -> frozenset[str]:
    """Return the devices, as `major:minor`, of file systems whose changes inotify may not hear of.

    `mountinfo` is the text of /proc/self/mountinfo (proc(5)): the device is the third field, and the type the first
    behind a lone `-`.
    """
    silent = set()
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.partition(" ")[0]
        if separator and len(fields) > 2 and (kind in _SILENT or kind.startswith("fuse.")):
            silent.add(fields[2])
    return frozenset(silent)


_OVERFLOW = -1
_MOVES = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
)
_NEXT_WRITE = Mask(InotifyConstants.IN_MODIFY | InotifyConstants.IN_ONESHOT)


@dataclass(frozen=True, slots=True)
class _News:
    """A watch that heard something, or has ended."""

    watch: int
    gone: bool = False


class Inotify:
    """Watches by number: folders for files that come, go and are renamed, files for their next write.

    `heard(watches, gone)` is called on the loop; `gone` are those that have ended, as that of a file does once it was
    heard. `lost()` says that the kernel's queue ran over: anything may have happened.
    """

    def __init__(
        self,
        heard: Callable[[set[int], set[int]], None],
        lost: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Open the descriptor and start the thread; raises OSError when there are too many of them."""
        self._heard = heard
        self._lost = lost
        self._loop = loop
        self._waiting: deque[_News] = deque()
        self._announced = False
        self._reader = InotifyFD()
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still reads."""
        return self._reader.is_alive()

    def watch_folder(self, path: str, inode: int) -> int:
        """Watch a folder until it is unwatched or gone; return the watch, or raise OSError."""
        return self._add(path, inode, _MOVES)

    def watch_file(self, path: str, inode: int) -> int:
        """Watch a file until it is next written to or truncated; return the watch, or raise OSError."""
        return self._add(path, inode, _NEXT_WRITE)

    def unwatch(self, watches: Mapping[int, int]) -> None:
        """Drop watches, each with the inode that it was meant for; that's fine for those that have ended."""
        self._reader.remove_callbacks(
            [(WatchDescriptor(watch), CallbackId(inode)) for watch, inode in watches.items()]
        )

    def close(self) -> None:
        """Stop the thread and close the descriptor; blocks for a moment."""
        self._reader.stop()
        self._reader.join()

    def on_event(self, event: InotifyEvent) -> None:
        """Take an event; runs in watchdog's thread."""
        self._tell(_News(event.wd))

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Take note that a watch has ended; runs in watchdog's thread."""
        self._tell(_News(wd, gone=True))

    def on_queue_overflow(self) -> None:
        """Take note that events were lost; runs in watchdog's thread."""
        self._tell(_News(_OVERFLOW))

    def _add(self, path: str, inode: int, mask: Mask) -> int:
        # by inode, since another file may stand at the path by now, which is watched already and stays so
        watch = self._reader.add_callback(os.fsencode(path), mask, self, CallbackId(inode))
        if watch == -1:  # watchdog passes over this error, and only over this one
            self.unwatch({watch: inode})
            raise PermissionError(errno.EACCES, "Permission denied")
        return watch

    def _tell(self, news: "_News") -> None:
        self._waiting.append(news)
        if not self._announced:
            self._announced = True
            with suppress(RuntimeError):  # the loop has ended; nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # lowered before anything is taken: what comes from now on announces itself again
        self._announced = False
        news = {self._waiting.popleft() for _ in range(len(self._waiting))}
        if _News(_OVERFLOW) in news:
            self._lost()
            return
        gone = {one.watch for one in news if one.gone}
        self._heard({one.watch for one in news}, gone)


_MOUNTS = Path("/proc/self/mountinfo")
_JUST = 20_000_000  # nanoseconds; file systems keep time by the tick of the kernel
_REMEDIES = {
    errno.ENOSPC: "; raise fs.inotify.max_user_watches",
    errno.EMFILE: "; raise fs.inotify.max_user_instances",
}

_UNHEARD = OSError(errno.ENOTSUP, "its file system does not tell")

Heard = Callable[[Collection[FileKey], bool], None]
Seen = Callable[[FileKey, Glimpse], None]


@dataclass(frozen=True, slots=True)
class Unheard:
    """Folders and files of which nothing will be heard; `complaint` says so where their file system would tell.

    `moved` says that a folder changed while it was not watched yet, or that a file is not where it was seen.
    """

    folders: Sequence[Folder] = ()
    files: Sequence[Target] = ()
    moved: bool = False
    complaint: Notice | None = None


@dataclass(frozen=True, slots=True)
class _Watch:
    """A watch that was set, or why not; `seen` is what a file was like after that, `changed` when a folder had changed last."""

    target: Target
    number: int = 0
    seen: Glimpse | None = None
    error: OSError | None = None
    changed: int = 0


_How = Callable[[Inotify, Target], _Watch]


class Watcher:
    """Watches with inotify what can be watched.

    `heard(files, moved)` is called on the loop with the files that were written to; `moved` says that something came,
    went or was renamed, or that events were lost. One task at a time may follow or listen.
    """

    def __init__(self, heard: Heard, *, listen: bool = True, mounts: Path = _MOUNTS) -> None:
        """Nothing is watched yet, and nothing ever without `listen`; `mounts` is the kernel's table of mounts."""
        self._heard = heard
        self._listens = listen
        self._mounts = mounts
        self._inotify: Inotify | None = None
        self._silent: frozenset[str] = frozenset()
        self._numbers: dict[FileKey, int] = {}
        self._keys: dict[int, FileKey] = {}
        self._folders: set[FileKey] = set()
        self._early: dict[int, bool] = {}

    def __contains__(self, key: FileKey) -> bool:
        """Whether the next change of a folder or file will be heard."""
        return key in self._numbers

    async def follow(self, paths: Iterable[str], files: Container[FileKey], listed: int) -> Unheard:
        """Watch these folders, and listen to no files but those of `files` that are listened to already.

        `listed` is when the folders were listed, in nanoseconds since the epoch. A folder that was made anew is
        watched anew.
        """
        found = await asyncio.to_thread(self._find, tuple(paths))
        folders = {folder.key: folder for folder in found}
        self._drop([key for key in self._folders if key not in folders])
        self._drop([k for k in self._numbers if k not in self._folders and k not in files])
        fresh = {key: folder for key, folder in folders.items() if key not in self._numbers}
        targets = [Target(key, folder.path) for key, folder in fresh.items()]
        self._folders.update(fresh)
        set_ = await self._set(targets, _watch_folder)
        self._folders = {key for key in folders if key in self._numbers}
        # what came after the listing and before the watch is heard by nobody
        changes = [folder.changed for folder in fresh.values()] + [each.changed for each in set_]
        moved = any(changed > listed - _JUST for changed in changes)
        deaf = [folder for folder in found if folder.key not in self._numbers]
        return Unheard(deaf, (), moved, _complaint(set_))

    async def listen(self, files: Sequence[Target], seen: Seen) -> Unheard:
        """Listen to these files until they are heard; pass on what each was like just after that began."""
        set_ = await self._set(files, _watch_file)
        for watch in set_:
            if watch.seen is not None:
                seen(watch.target.key, watch.seen)
        deaf = [watch.target for watch in set_ if watch.error is not None]
        missing = any(watch.error is None and watch.seen is None for watch in set_)
        return Unheard((), deaf, missing, _complaint(set_))

    async def close(self) -> None:
        """Stop watching."""
        inotify, self._inotify, self._listens = self._inotify, None, False
        if inotify is not None:
            await asyncio.to_thread(inotify.close)

    def _find(self, paths: Sequence[str]) -> list[Folder]:
        try:
            self._silent = silent_devices(self._mounts.read_text(errors="replace"))
        except OSError:
            self._silent = frozenset()
        return [folder for path in paths if (folder := folder_at(path)) is not None]

    async def _set(self, targets: Sequence[Target], how: _How) -> list[_Watch]:
        audible = [target for target in targets if self._is_audible(target)]
        silent = [_Watch(t, error=_UNHEARD) for t in targets if not self._is_audible(t)]
        self._early.clear()
        try:
            set_ = await asyncio.to_thread(_set_all, self._open(), audible, how) if audible else []
        except OSError as error:
            set_ = [_Watch(target, error=error) for target in audible]
        for watch in set_:
            if watch.number:
                self._numbers[watch.target.key] = watch.number
                self._keys[watch.number] = watch.target.key
        early = [number for number in self._early if number in self._keys]
        if early:
            self._hear(early, {number for number in early if self._early[number]})
        return set_ + silent

    def _is_audible(self, target: Target) -> bool:
        device = target.key.device
        return self._listens and f"{os.major(device)}:{os.minor(device)}" not in self._silent

    def _open(self) -> Inotify:
        if self._inotify is not None and not self._inotify.is_alive:
            self._lose()
            self._inotify.close()
            self._inotify = None
        if self._inotify is None:
            self._inotify = Inotify(self._hear, self._lose, asyncio.get_running_loop())
        return self._inotify

    def _hear(self, watches: Collection[int], gone: Container[int]) -> None:
        files: set[FileKey] = set()
        moved = False
        for number in watches:
            key = self._keys.get(number)
            if key is None:
                # of a watch that is just being set, or has been dropped
                self._early[number] = number in gone or self._early.get(number, False)
            elif key in self._folders:
                moved = True
                if number in gone:
                    self._forget(key)
            else:
                self._forget(key)
                files.add(key)
        if files or moved:
            self._heard(files, moved)

    def _lose(self) -> None:
        # that's fine: who listens again is told what the files are like by then
        files = [key for key in self._numbers if key not in self._folders]
        self._drop(list(self._numbers))
        self._heard(files, True)

    def _drop(self, keys: Collection[FileKey]) -> None:
        if keys and self._inotify is not None:
            self._inotify.unwatch({self._numbers[key]: key.inode for key in keys})
        for key in keys:
            self._forget(key)

    def _forget(self, key: FileKey) -> None:
        del self._keys[self._numbers.pop(key)]
        self._folders.discard(key)


def _set_all(inotify: Inotify, targets: Sequence[Target], how: _How) -> list[_Watch]:
    watches: list[_Watch] = []
    full: OSError | None = None
    for target in targets:
        watch = _Watch(target, error=full) if full is not None else how(inotify, target)
        if watch.error is not None and watch.error.errno == errno.ENOSPC:
            full = watch.error  # it would be so for all the others
        watches.append(watch)
    return watches


def _watch_folder(inotify: Inotify, target: Target) -> _Watch:
    try:
        number = inotify.watch_folder(target.reach, target.key.inode)
    except OSError as error:
        return _Watch(target, error=error)
    folder = folder_at(target.reach)
    return _Watch(target, number, changed=folder.changed if folder else 0)


def _watch_file(inotify: Inotify, target: Target) -> _Watch:
    try:
        number = inotify.watch_file(target.reach, target.key.inode)
    except FileNotFoundError:
        return _Watch(target)
    except OSError as error:
        return _Watch(target, error=error)
    seen = glimpse(target)
    if seen is None:
        inotify.unwatch({number: target.key.inode})
        return _Watch(target)
    return _Watch(target, number, seen)


def _complaint(watches: Sequence[_Watch]) -> Notice | None:
    failed = [watch for watch in watches if watch.error not in (None, _UNHEARD)]
    if not failed or (error := failed[0].error) is None:
        return None
    more = f", nor can {len(failed) - 1} more" if len(failed) > 1 else ""
    remedy = _REMEDIES.get(error.errno or 0, "")
    text = f"cannot be watched ({error.strerror}){more}; looked at every now and then{remedy}"
    return Notice(NoticeKind.UNWATCHED, failed[0].target.path, text)
