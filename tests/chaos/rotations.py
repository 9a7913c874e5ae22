"""Rotates logs as logrotate and applications do, in every style, and loses no line by itself.

A file is copied whole before it is truncated, and removed only once it and its successor are
received.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shipper.sources.files.paths import Compression
from tests.chaos.logfile import LogFile
from tests.shipper.host import packed
from tests.support.commands import retried

_LATE = (0.1, 6.0)  # seconds
_SERIES = 0.15
_SERIES_EVERY = (0.1, 0.4)  # seconds
_QUIET = 3.0  # seconds that an application waits for all to be received
_LOOK = 0.2  # seconds
_SLOWLY = 0.3  # seconds, at most, that a copy or an archive takes


@dataclass(slots=True)
class _Rotated:
    path: Path
    end: int


class Rotation:
    """Rotates one log; `is_received(end)` says whether its bytes before `end` are received.

    The style is drawn: the ways, how often, how many rotated files are kept, when they are packed.
    Rotated files are `app.log-20260101-000001`, or `app.log.1`, which becomes `app.log.2`.
    """

    def __init__(
        self, log: LogFile, chance: random.Random, is_received: Callable[[int], bool]
    ) -> None:
        self._has_dates = chance.random() < 0.5
        self._ways = chance.choices(_WAYS, k=chance.choice((1, 2, 6)))
        self._packing: Compression | None = chance.choice((None, None, *Compression))
        self._is_delayed = chance.random() < 0.5
        self._keep = chance.randrange(4, 12)
        self._every = chance.choice((4.0, 10.0, 25.0))
        self._log = log
        self._chance = chance
        self._is_received = is_received
        self._rotated: list[_Rotated] = []  # newest first
        self._count = 0
        self._next = self._interval()
        self._late: float | None = None
        self._known_from: int | None = None

    def tick(self, seconds: float) -> None:
        """Do what is due; called when the log ends with a whole line."""
        if self._late is not None:
            self._late -= seconds
            if self._late <= 0:
                self._end_late()
            return
        self._next -= seconds
        if self._next > 0 or not self._log.length or not self._is_known():
            return
        self._next = self._interval()
        self._chance.choice(self._ways)(self)
        if self._late is None:
            self._tidy()

    @property
    def is_late(self) -> bool:
        return self._late is not None

    def _interval(self) -> float:
        if self._chance.random() < _SERIES:
            return self._chance.uniform(*_SERIES_EVERY)
        return self._chance.expovariate(1 / self._every)

    def _is_known(self) -> bool:
        """Whether a shipper knows the log; earlier rotations are not its business."""
        if self._known_from is None:
            self._known_from = self._log.begins
        return self._is_received(self._known_from + 1)

    def rename(self) -> None:
        self._move()
        self._log.begin()

    def rename_late(self) -> None:
        """Rename the file; the application goes on writing to it, and makes a new one later."""
        self._move()
        self._late = self._chance.uniform(*_LATE)

    def rename_create_late(self) -> None:
        """Rename the file and make an empty one; the old one is written for a while."""
        self.rename_late()
        retried(self._log.path.touch)

    def _end_late(self) -> None:
        self._late = None
        self._rotated[0].end = self._log.written
        self._log.begin()
        self._tidy()

    def copy_truncate(self) -> None:
        """Copy the file, and truncate it once the copy is whole; nothing is written meanwhile."""
        path = self._shift()
        if self._write_whole(path, self._log.path.read_bytes):
            self._note(path)
            self._log.truncate()

    def replace(self) -> None:
        """Delete the file once all of it is received, and make a new one of the same name."""
        deadline = time.monotonic() + _QUIET
        while not self._is_received(self._log.written):
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOK)
        retried(self._log.path.unlink)
        self._log.begin()
        self._known_from = None

    def _move(self) -> None:
        path = self._shift()
        retried(lambda: self._log.path.rename(path))
        self._note(path)

    def _shift(self) -> Path:
        """Rename older files, and return the name of the next rotated file."""
        path = self._log.path
        if self._has_dates:
            self._count += 1
            return path.with_name(f"{path.name}-20260101-{self._count:06d}")
        for number, older in reversed([*enumerate(self._rotated, 2)]):
            ending = older.path.suffix if _is_packed(older.path) else ""
            older.path = retried(
                partial(older.path.rename, path.with_name(f"{path.name}.{number}{ending}"))
            )
        return path.with_name(f"{path.name}.1")

    def _note(self, path: Path) -> None:
        self._rotated.insert(0, _Rotated(path, self._log.written))

    def _tidy(self) -> None:
        if self._packing:
            for rotated in self._rotated[int(self._is_delayed) :][:2]:
                if not _is_packed(rotated.path):
                    self._pack(rotated, self._packing)
        while len(self._rotated) > self._keep and self._is_received(self._rotated[-2].end):
            retried(self._rotated.pop().path.unlink)

    def _pack(self, rotated: _Rotated, compression: Compression) -> None:
        plain = rotated.path
        archive = plain.with_name(plain.name + compression.value)
        if not self._write_whole(archive, lambda: packed(plain.read_bytes(), compression)):
            return
        changed = plain.stat().st_mtime_ns
        retried(lambda: os.utime(archive, ns=(changed, changed)))
        retried(plain.unlink)
        rotated.path = archive

    def _write_whole(self, path: Path, content: Callable[[], bytes]) -> bool:
        """Write another file, with a pause; if the disk refuses, remove it, return False."""
        if path.exists():
            raise FileExistsError(path)
        try:
            data = content()
            middle = self._chance.randrange(len(data) + 1)
            with path.open("xb", buffering=0) as file:
                for part in (data[:middle], data[middle:]):
                    time.sleep(self._chance.random() ** 4 * _SLOWLY)
                    if file.write(part) < len(part):
                        break
                else:
                    return True
        except OSError:
            pass
        retried(lambda: path.unlink(missing_ok=True))
        return False


def _is_packed(path: Path) -> bool:
    return path.suffix in {compression.value for compression in Compression}


_RENAMES = (Rotation.rename, Rotation.rename_late, Rotation.rename_create_late)
_WAYS = (*_RENAMES, Rotation.copy_truncate, Rotation.replace)
