"""A host's journal: real journal files that a thread feeds, rotates and vacuums, and an account.

No fault hits the disk that it is on: what systemd-journal-remote writes is known for sure.
"""

import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support.journals import JournalWriter, show

_PAUSE = (0.5, 2.5)  # seconds
_MOST = 40  # entries at a time
_ROTATES = 0.08
_KEEP = 2  # rotated files, and those that are not received


class _Archive(NamedTuple):
    path: Path
    entries: range
    end: int


class Journal:
    """Entries that are written to a journal in `folder`, in files that are deleted once received.

    `written` is how many bytes their lines have. `vacuumed` has the numbers of the entries that
    were deleted although they may not have been received.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.written = 0
        self.vacuumed: set[int] = set()
        self._writer = JournalWriter(folder)
        self._chance = random.Random(f"journal {seed}")
        self._lines: list[bytes] = []  # that of entry 1 first
        self._archives: list[_Archive] = []  # the oldest first
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, is_received: Callable[[int], bool]) -> None:
        """Write from a thread until `stop`; `is_received(end)` is of the bytes of all lines."""
        self._thread = threading.Thread(target=self._run, args=(is_received,), name="journal")
        self._thread.start()

    def stop(self) -> None:
        """Write no more; raises RuntimeError if the thread died."""
        self._over.set()
        if self._thread:
            self._thread.join()
        if self._failure:
            raise RuntimeError(f"what writes {self.folder} died") from self._failure

    def vacuum_unshipped(self) -> None:
        """Write entries and delete their file, which no agent can have read if none runs."""
        with self._lock:
            self._write()
            self._rotate()
            archive = self._archives.pop()
            archive.path.unlink()
            self.vacuumed.update(archive.entries)

    def size_of(self, entries: Iterable[int]) -> int:
        """Return how many bytes the lines of these entries have."""
        return sum(len(self._lines[number - 1]) for number in entries)

    def content(self, lost: set[int]) -> bytes:
        """Return the lines of all entries but those that are reported as lost, and were deleted."""
        excused = lost & self.vacuumed
        lines = enumerate(self._lines, 1)
        return b"".join(line for number, line in lines if number not in excused)

    def _run(self, is_received: Callable[[int], bool]) -> None:
        try:
            while not self._over.wait(self._chance.uniform(*_PAUSE)):
                with self._lock:
                    self._write()
                    if self._chance.random() < _ROTATES:
                        self._rotate()
                    self._vacuum(is_received)
        except BaseException as error:
            self._failure = error
            raise

    def _write(self) -> None:
        self._writer.write(self._chance.randint(1, _MOST))
        self._take_note()

    def _rotate(self) -> None:
        """Have the file archived that has all entries up to now, and go on in the next one."""
        path, entries = self._writer.archive()
        self._take_note()
        self._archives.append(_Archive(path, entries, self.size_of(range(1, entries.stop))))

    def _vacuum(self, is_received: Callable[[int], bool]) -> None:
        while len(self._archives) > _KEEP and is_received(self._archives[0].end):
            self._archives.pop(0).path.unlink()

    def _take_note(self) -> None:
        """Note how journalctl shows what was written since."""
        count = self._writer.written - len(self._lines)
        shown = show(self.folder, "short-iso-precise", f"--lines={count}").splitlines(True)
        assert len(shown) == count, f"{count} entries were written, journalctl shows {len(shown)}"
        self._lines += shown
        self.written += sum(map(len, shown))
