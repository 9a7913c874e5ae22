"""How far the attempts at units are: each has a folder of its own, so that none disturbs another, and says it there."""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from receiver.replay.units import Unit
from receiver.storage.opening import descriptor_of, read

__all__ = ["Attempt", "attempt", "reached"]

_REACHED = ".reached"


class Attempt:
    """One attempt at a unit, and its folder."""

    def __init__(self, folder: Path) -> None:
        """Say nothing yet."""
        self.folder = folder

    def reach(self, until: int) -> None:
        """Say that all before a sequence is done."""
        with suppress(OSError):  # that's fine: it is only shown to somebody who waits
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with os.fdopen(descriptor_of(self.folder / _REACHED, flags), "wb") as file:
                file.write(b"%d\n" % until)


@contextmanager
def attempt(stage: Path, unit: Unit) -> Iterator[Attempt]:
    """Make the folder of an attempt, which is whole when the block is left without an exception; raises OSError."""
    folder = stage / f"p{unit.partition}-{unit.slot}.{secrets.token_hex(4)}"
    folder.mkdir(mode=0o750)
    started = Attempt(folder)
    started.reach(unit.first)
    yield started
    (folder / _REACHED).unlink(missing_ok=True)


def reached(stage: Path, units: Iterable[Unit]) -> float:
    """Return the part of `units` that attempts under `stage` have done so far, by sequences, from 0 to 1."""
    done, whole = 0, 0
    for unit in units:
        whole += unit.until - unit.first
        attempts = [
            _progress(folder, unit) for folder in stage.glob(f"p{unit.partition}-{unit.slot}.*")
        ]
        done += max(attempts, default=0)
    return done / whole if whole else 1.0


def _progress(folder: Path, unit: Unit) -> int:
    try:
        word = read(folder / _REACHED).strip()
    except OSError:
        return unit.until - unit.first  # gone when all is done
    return int(word) - unit.first if word else 0
