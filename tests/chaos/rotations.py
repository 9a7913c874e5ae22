"""Rotation as logrotate and applications do it, in every style, all the time, without ever destroying a line by itself.

No style takes away what a shipper had no chance to read: a file is copied whole before it is truncated, and removed only
once it is known to be received; then its successor is, too, so that a file that is known is always there.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from shipper.tail.paths import Packing
from tests.chaos.logfile import Insistence, LogFile
from tests.shipper.host import packed

_LATE = (0.1, 6.0)  # seconds
_ALL = 1_000_000  # files: none is ever removed
_LONG_ENOUGH = 3.0  # seconds, for one that looks several times a second
_SERIES = 0.15
_SERIES_EVERY = (0.1, 0.4)  # seconds
_QUIET, _LOOK = (
    3.0,
    0.2,
)  # seconds that an application waits for all to be received, and between looks
_SLOWLY = 0.3  # seconds, at most, that a copy or an archive takes


class Naming(Enum):
    """What rotated files are called."""

    NUMBERS = auto()
    """`app.log.1`, which becomes `app.log.2` at the next rotation."""
    DATES = auto()
    """`app.log-20260101-000001`"""


class Way(Enum):
    """How a file is rotated."""

    RENAME = auto()
    """Renamed; a new one is made at once."""
    RENAME_LATE = auto()
    """Renamed; the application goes on writing to it for a while, until it makes a new one."""
    RENAME_CREATE_LATE = auto()
    """Renamed, and an empty one is made; the application goes on writing to the old one for a while."""
    COPY_TRUNCATE = auto()
    """Copied, and truncated once the copy is whole; nothing is written meanwhile."""
    REPLACE = auto()
    """Deleted once all of it is received, and made anew under the same name."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a log is rotated: about `every` so many seconds, `keep` rotated files, the newest one packed later or at once.

    A file is written for `at_least` so many seconds.
    """

    naming: Naming
    ways: tuple[Way, ...]
    packing: Packing | None
    is_delayed: bool
    keep: int
    every: float
    at_least: float = 0.0

    @classmethod
    def drawn(cls, chance: random.Random) -> "Style":
        """Draw a style; most logs are rotated in one or two ways, as most are."""
        ways = tuple(chance.choices(tuple(Way), k=chance.choice((1, 2, 6))))
        return cls(
            naming=chance.choice(tuple(Naming)),
            ways=ways,
            packing=chance.choice((None, None, *Packing)),
            is_delayed=chance.random() < 0.5,
            keep=chance.randrange(4, 12),
            every=chance.choice((4.0, 10.0, 25.0)),
        )

    @classmethod
    def plain(cls, chance: random.Random) -> "Style":
        """Return the style that every suite can follow: renamed, made anew at once, and left alone."""
        every = chance.choice((5.0, 15.0))
        return cls(Naming.NUMBERS, (Way.RENAME,), None, False, _ALL, every, _LONG_ENOUGH)


@dataclass(slots=True)
class _Rotated:
    path: Path
    number: int
    end: int


class Rotation:
    """Rotates one log; `is_received(end)` says whether all bytes of the log before `end` have been received for sure."""

    def __init__(
        self,
        log: LogFile,
        style: Style,
        chance: random.Random,
        insist: Insistence,
        is_received: Callable[[int], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._log = log
        self._style = style
        self._chance = chance
        self._insist = insist
        self._is_received = is_received
        self._pause = pause
        self._rotated: list[_Rotated] = []  # newest first
        self._count = 0
        self._next = self._interval()
        self._late: float | None = None
        self._known_from: int | None = None

    def tick(self, seconds: float) -> None:
        """Do what is due; called where the log stands at the end of a line."""
        if self._late is not None:
            self._late -= seconds
            if self._late <= 0:
                self._end_late()
            return
        self._next -= seconds
        if self._next > 0 or not self._log.now.length or not self._is_known():
            return
        self._next = self._interval()
        way = self._chance.choice(self._style.ways)
        if _WAYS[way](self):
            self._count += 1
            if self._late is None:
                self._tidy()

    @property
    def is_late(self) -> bool:
        """Whether a renamed file is still being written."""
        return self._late is not None

    def _interval(self) -> float:
        if self._chance.random() < _SERIES:
            seconds = self._chance.uniform(*_SERIES_EVERY)
        else:
            seconds = self._chance.expovariate(1 / self._style.every)
        return max(seconds, self._style.at_least)

    def _is_known(self) -> bool:
        """Whether a shipper knows the log: what was rotated before it came to know a log is not its business."""
        if self._known_from is None:
            self._known_from = self._log.now.begins
        return self._is_received(self._known_from + 1)

    # the ways

    def _rename(self) -> bool:
        path = self._shift()
        self._insist(lambda: self._log.path.rename(path))
        self._note(path)
        self._log.begin()
        return True

    def _rename_late(self) -> bool:
        path = self._shift()
        self._insist(lambda: self._log.path.rename(path))
        self._note(path)
        self._late = self._chance.uniform(*_LATE)
        return True

    def _rename_create_late(self) -> bool:
        self._rename_late()
        self._insist(self._log.path.touch)
        return True

    def _end_late(self) -> None:
        self._late = None
        self._rotated[0].end = self._log.written
        self._log.begin()
        self._tidy()

    def _copy_truncate(self) -> bool:
        path = self._shift()
        if not self._write_whole(path, self._log.path.read_bytes):
            return False
        self._note(path)
        self._log.truncate()
        return True

    def _replace(self) -> bool:
        deadline = time.monotonic() + _QUIET
        while not self._is_received(self._log.written):
            if time.monotonic() > deadline:
                return False
            self._pause(_LOOK)
        self._insist(self._log.path.unlink)
        self._log.begin()
        self._known_from = None
        return True

    # rotated files

    def _shift(self) -> Path:
        """Make room, and return the name of the next rotated file."""
        name, folder = self._log.path, self._log.path.parent
        match self._style.naming:
            case Naming.DATES:
                return folder / f"{name.name}-20260101-{self._count:06d}"
            case Naming.NUMBERS:
                for older in reversed(self._rotated):
                    self._renumber(older)
                return folder / f"{name.name}.1"

    def _renumber(self, rotated: _Rotated) -> None:
        ending = rotated.path.suffix if _is_packed(rotated.path) else ""
        rotated.number += 1
        path = self._log.path.with_name(f"{self._log.path.name}.{rotated.number}{ending}")
        self._insist(lambda: rotated.path.rename(path))
        rotated.path = path

    def _note(self, path: Path) -> None:
        self._rotated.insert(0, _Rotated(path, 1, self._log.written))

    def _tidy(self) -> None:
        if self._style.packing:
            for rotated in self._rotated[1 if self._style.is_delayed else 0 :][:2]:
                if not _is_packed(rotated.path):
                    self._pack(rotated, self._style.packing)
        while len(self._rotated) > self._style.keep and self._is_received(self._rotated[-2].end):
            self._insist(self._rotated.pop().path.unlink)

    def _pack(self, rotated: _Rotated, packing: Packing) -> None:
        plain = rotated.path
        archive = plain.with_name(plain.name + packing.value)
        if not self._write_whole(archive, lambda: packed(plain.read_bytes(), packing)):
            return
        changed = plain.stat().st_mtime_ns
        self._insist(lambda: os.utime(archive, ns=(changed, changed)))
        self._insist(plain.unlink)
        rotated.path = archive

    def _write_whole(self, path: Path, content: Callable[[], bytes]) -> bool:
        """Write another file, with a pause somewhere; where the disk refuses, remove what there is and return False."""
        if path.exists():
            raise FileExistsError(path)
        try:
            data = content()
            middle = self._chance.randrange(len(data) + 1)
            with path.open("xb", buffering=0) as file:
                for part in (data[:middle], data[middle:]):
                    self._pause(self._chance.random() ** 4 * _SLOWLY)
                    if file.write(part) < len(part):
                        break
                else:
                    return True
        except OSError:
            pass
        self._insist(lambda: path.unlink(missing_ok=True))
        return False


def _is_packed(path: Path) -> bool:
    return path.suffix in {packing.value for packing in Packing}


_WAYS: dict[Way, Callable[[Rotation], bool]] = {
    Way.RENAME: Rotation._rename,
    Way.RENAME_LATE: Rotation._rename_late,
    Way.RENAME_CREATE_LATE: Rotation._rename_create_late,
    Way.COPY_TRUNCATE: Rotation._copy_truncate,
    Way.REPLACE: Rotation._replace,
}
