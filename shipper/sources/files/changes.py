"""Watches followed files and folders by inotify: writes, and files that come, go or are renamed.

No promise depends on inotify, which does not report what other machines write: everything is
scanned every `poll_every` seconds as well.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from shipper.sources.files import inotify
from shipper.sources.files.identity import FileEntry, FileKey
from shipper.sources.files.inotify import Inotify, InotifyEvent
from shipper.sources.notices import Notice, NoticeKind

_PAUSE = 0.1  # seconds between two wake-ups, however many writes there are
_POLL_SHARE = 100  # scans by polling take 1/100 of a core at most


class ChangeDetection:
    """Calls `wake_up` on the event loop on any change; another thread may watch and read events."""

    def __init__(self, wake_up: Callable[[], object], poll_every: float, listen: bool) -> None:
        """Watch nothing yet; `poll_every` is in seconds; without `listen` only poll."""
        self._wake_up = wake_up
        self._poll_every = poll_every
        self._listens = listen
        self._inotify = Inotify(inotify.ANY)
        self._is_awaited = False
        self._silent_until = 0.0  # by the clock of the event loop
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
        before, watched = set(self._files.values()), self._inotify.watches
        self._files = {entry.real: entry.key for entry in entries}
        self._inotify.watch(folders)
        # a write to a new file, or in a new folder, before this was not reported
        is_new = not (
            before.issuperset(self._files.values()) and watched.issuperset(self._inotify.watches)
        )
        every = 0 if is_new else max(self._poll_every, _POLL_SHARE * took)
        self._next_poll = time.monotonic() + every
        if not (shortage := self._inotify.take_shortage()):
            return []
        text = f"not all of it can be watched, the rest is polled: {shortage}"
        return [Notice(NoticeKind.UNWATCHED, next(iter(folders), "/"), text)]

    def listen(self) -> None:
        """Open inotify, unless it is open, or changes are only polled."""
        if self._inotify.descriptor < 0 and self._listens:
            self._inotify.open()

    def await_change(self) -> None:
        """Have `wake_up` called once at the next change, or one since events were read last."""
        if self._is_awaited or self._inotify.descriptor < 0:
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
        paths, is_due = self._sort(self._inotify.read())
        if time.monotonic() >= self._next_poll:
            self._next_poll, is_due = time.monotonic() + self._poll_every, True
        return [self._files[path] for path in paths if path in self._files], is_due

    def close(self) -> None:
        """Stop watching."""
        self._listens = False
        if self._inotify.descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify.descriptor)
        self._inotify.close()

    def _await(self) -> None:
        if self._inotify.descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._inotify.descriptor, self._note_change)

    def _note_change(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify.descriptor)
        self._is_awaited, self._silent_until = False, loop.time() + _PAUSE
        self._wake_up()

    def _sort(self, events: Iterable[InotifyEvent]) -> tuple[set[str], bool]:
        """Return the files that were written to, and whether anything else happened."""
        writes, is_due, watches = set[InotifyEvent](), False, self._inotify.watches
        for event in events:
            if event.mask & inotify.WRITTEN:
                writes.add(event)
            is_due |= not event.mask & inotify.NO_CHANGE
        # an event may come before its watch is known here
        is_due |= any(event.watch not in watches for event in writes)
        return {path for event in writes for path in self._inotify.paths_of(event)}, is_due
