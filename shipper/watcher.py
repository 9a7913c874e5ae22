"""Wakes the follower when something changes in the watched folders. Tells that, and where; decides nothing."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from shipper.notice import Notice, NoticeKind
from shipper.sighting import FileKey

__all__ = ["Watcher"]

_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]


class Watcher(FileSystemEventHandler):
    """Watches folders with inotify, and does without where there is none: the follower looks now and then anyway.

    `changed(path, moved)` is called on the loop; `moved` says that a file came, went or was renamed.
    """

    def __init__(self, changed: Callable[[str, bool], None]) -> None:
        self._changed = changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observer: BaseObserver | None = None
        self._watched: dict[str, tuple[FileKey, ObservedWatch]] = {}
        self._refused: set[str] = set()
        self._pending: set[str] = set()

    async def follow(self, folders: Iterable[str]) -> list[Notice]:
        """Watch these folders and no others; a folder that was made anew is watched anew."""
        self._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._follow, set(folders))

    async def close(self) -> None:
        """Stop watching."""
        observer, self._observer, self._loop = self._observer, None, None
        if observer is not None:
            await asyncio.to_thread(_stop, observer)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Pass a change on to the loop; runs in the observer's thread."""
        moved = event.event_type != "modified"
        path = os.fsdecode(event.src_path)
        # a busy file gives thousands of events a second: one that waits to be heard is enough
        if not moved and path in self._pending:
            return
        self._pending.add(path)
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended; nobody listens any more
                loop.call_soon_threadsafe(self._deliver, path, moved)

    def _deliver(self, path: str, moved: bool) -> None:
        self._pending.discard(path)
        self._changed(path, moved)

    def _follow(self, folders: set[str]) -> list[Notice]:
        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        keys = {folder: key for folder in folders if (key := _key(folder)) is not None}
        for folder, (key, watch) in list(self._watched.items()):
            if keys.get(folder) != key:
                del self._watched[folder]
                with suppress(KeyError, OSError):  # its emitter may have ended with the folder
                    self._observer.unschedule(watch)
        notices = [self._schedule(folder, key) for folder, key in keys.items()]
        return [notice for notice in notices if notice is not None]

    def _schedule(self, folder: str, key: FileKey) -> Notice | None:
        if folder in self._watched or self._observer is None:
            return None
        try:
            watch = self._observer.schedule(self, folder, event_filter=_EVENTS, follow_symlink=True)
        except OSError as error:
            if folder in self._refused:
                return None
            self._refused.add(folder)
            text = f"cannot be watched ({error.strerror}); it is looked at now and then"
            return Notice(NoticeKind.UNWATCHED, folder, text)
        self._watched[folder] = key, watch
        self._refused.discard(folder)
        return None


def _key(folder: str) -> FileKey | None:
    try:
        status = os.stat(folder)  # noqa: PTH116 - one call less for each of many folders
    except OSError:
        return None
    return FileKey(status.st_dev, status.st_ino)


def _stop(observer: BaseObserver) -> None:
    observer.stop()
    observer.join()
