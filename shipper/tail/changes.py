"""How much attention each file needs: a quiet one is listened to, a growing one is glanced at, a silent one is polled.

    quiet ──heard──▶ growing ──nothing new for a second──▶ quiet (listened to first, then looked at: no write is missed)
    silent (a file system that tells of nothing, no watches left): looked at every `poll_every` seconds

Reads no file; a glance only says which tailers may have something to read.
"""

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from shipper.tail.notices import Notice
from shipper.tail.open_files import Handles
from shipper.tail.scan import FileKey
from shipper.tail.tailer import Tailer
from shipper.tail.watcher import Folder, Glimpse, Heard, Target, Watcher, folder_at, glimpse

__all__ = ["ChangeDetection"]

_LASTING = (
    1.0  # seconds that a file is glanced at after it grew: hearing of each write would cost more
)
_TICK = 0.05  # seconds between glances
_SHARE = 20  # glances take at most one part in so many of a core
_POLL_SHARE = 100


class ChangeDetection:
    """Watches over all that is followed; `heard(files, moved)` is called as by `Watcher`.

    A glance is part of gathering and a look part of looking, so one task at a time is in here.
    """

    def __init__(self, handles: Handles, heard: Heard, poll_every: float, listen: bool) -> None:
        """`poll_every` is in seconds; without `listen` everything is polled."""
        self._handles = handles
        self._tell = heard
        self._poll_every = poll_every
        self._watcher = Watcher(self._heard, listen=listen)
        self._growing: dict[FileKey, float] = {}
        self._silent: dict[FileKey, Target] = {}
        self._folders: dict[str, Folder] = {}
        self._unsure: set[str] = set()
        self._next_glance = 0.0
        self._next_poll = 0.0
        self._complained = False

    @property
    def patience(self) -> float:
        """After how many seconds another glance is due though nothing was heard; infinite when none is."""
        now = _now()
        glance = max(_TICK, self._next_glance - now) if self._growing else math.inf
        poll = max(0.0, self._next_poll - now) if self._silent or self._folders else math.inf
        return min(glance, poll)

    def is_growing(self, key: FileKey) -> bool:
        """Whether a file was heard to grow and is glanced at since: what was written last is in memory, of this machine."""
        return key in self._growing

    async def follow(
        self, folders: Iterable[str], tailers: Mapping[FileKey, Tailer], listed: int
    ) -> list[Notice]:
        """Attend to these folders and files and no others; the folders were listed at `listed`, in nanoseconds."""
        unheard = await self._watcher.follow(folders, tailers, listed)
        self._folders = {folder.path: folder for folder in unheard.folders}
        # should watches run out, the files that were quiet for longest do without
        quiet = [t for k, t in tailers.items() if k not in self._watcher and k not in self._growing]
        quiet.sort(key=lambda tailer: -tailer.entry.modified)
        self._silent = {}
        complaint = await self._listen([self._target(t) for t in quiet], tailers)
        if unheard.moved:
            self._tell((), True)
        return self._say_once(unheard.complaint or complaint)

    async def glance(self, tailers: Mapping[FileKey, Tailer]) -> list[FileKey]:
        """Return the files that look as if there was something to read, of those that are due."""
        now = _now()
        grown: list[FileKey] = []
        if self._growing and now >= self._next_glance:
            quiet = self._glance(tailers, now, grown)
            self._next_glance = now + _SHARE * (_now() - now)
            if quiet:
                await self._listen(quiet, tailers)
        if (self._silent or self._folders) and now >= self._next_poll:
            await self._poll(tailers, grown)
            self._next_poll = now + max(self._poll_every, _POLL_SHARE * (_now() - now))
        return grown

    async def close(self) -> None:
        """Stop watching."""
        await self._watcher.close()

    def _heard(self, files: Collection[FileKey], moved: bool) -> None:
        until = _now() + _LASTING
        self._growing.update((key, until) for key in files)
        self._tell(files, moved)

    def _glance(
        self, tailers: Mapping[FileKey, Tailer], now: float, grown: list[FileKey]
    ) -> list[Target]:
        quiet = []
        for key, until in list(self._growing.items()):
            tailer = tailers.get(key)
            if tailer is None:
                del self._growing[key]
                continue
            if tailer.dirty or tailer.suspect:
                continue  # that comes first
            target = self._target(tailer)
            seen = glimpse(target)
            if seen is not None and tailer.differs(seen):
                self._growing[key] = now + _LASTING
                grown.append(key)
            elif now >= until:
                del self._growing[key]
                quiet.append(target)
        return quiet

    async def _listen(
        self, targets: Sequence[Target], tailers: Mapping[FileKey, Tailer]
    ) -> Notice | None:
        grown = []

        def seen(key: FileKey, seen: Glimpse) -> None:
            tailer = tailers.get(key)
            if tailer is not None and not tailer.dirty and tailer.differs(seen):
                grown.append(key)

        unheard = await self._watcher.listen(targets, seen)
        self._silent.update((target.key, target) for target in unheard.files)
        if grown or unheard.moved:
            self._tell(grown, unheard.moved)
        return unheard.complaint

    async def _poll(self, tailers: Mapping[FileKey, Tailer], grown: list[FileKey]) -> None:
        silent = [target for key, target in self._silent.items() if key in tailers]
        folders, seen = await asyncio.to_thread(_look_at, list(self._folders), silent)
        for target, one in zip(silent, seen, strict=True):
            tailer = tailers.get(target.key)
            if tailer is not None and one is not None and tailer.differs(one):
                grown.append(target.key)
        changed = {path for path in self._folders if folders.get(path) != self._folders[path]}
        # time on file systems is coarse: what changed just after it was seen to change shows the next time or never
        if changed or self._unsure:
            self._tell((), True)
        self._unsure = changed
        self._folders = folders

    def _target(self, tailer: Tailer) -> Target:
        key = tailer.entry.key
        return Target(key, tailer.entry.real, self._handles.opened(key))

    def _say_once(self, complaint: Notice | None) -> list[Notice]:
        said, self._complained = self._complained, complaint is not None
        return [complaint] if complaint is not None and not said else []


def _look_at(
    paths: Sequence[str], files: Sequence[Target]
) -> tuple[dict[str, Folder], list[Glimpse | None]]:
    folders = {path: folder for path in paths if (folder := folder_at(path)) is not None}
    return folders, [glimpse(target) for target in files]


def _now() -> float:
    return asyncio.get_running_loop().time()
