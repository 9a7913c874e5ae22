"""One inotify descriptor for all folders and files, and one thread that reads it, by watchdog's lower layer.

Its observers would take a thread for every watch and hold renames back for half a second. Passes on which watch heard
something, in one call on the loop for all that has gathered meanwhile; decides nothing.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

__all__ = ["Inotify"]

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
