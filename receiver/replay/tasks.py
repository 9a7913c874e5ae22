"""What a Spark task of a replay or a verification is: a part of the hosts of a partition, and how far it is.

Executors import this; they have nothing but our packages, nats-py and zstandard.
"""

import os
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from broker.app.exits import OperatorError
from receiver.storage.opening import descriptor_of, read
from receiver.storage.position import Damaged

__all__ = ["Failed", "Unit", "cut_evenly", "reach", "reached", "tried"]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Unit:
    """What one task reads: sequences `[first, until)` of a partition, and of its hosts the `slot`th of `slots` parts."""

    partition: int
    first: int
    until: int
    slot: int = 0
    slots: int = 1

    @property
    def name(self) -> str:
        """A name that no other unit has."""
        return f"p{self.partition}-{self.slot}"

    def has(self, host: str) -> bool:
        """Whether a host's lines are this unit's."""
        return self.slots == 1 or zlib.crc32(host.encode()) % self.slots == self.slot


def cut_evenly(partitions: tuple[int, ...], first: int, until: int, cores: int) -> list[Unit]:
    """Return units that keep `cores` tasks busy: a partition each, or parts of its hosts where partitions are fewer.

    A host is one unit's alone, so that its lines keep their order.
    """
    slots = -(-cores // len(partitions)) if partitions else 1
    return [
        Unit(partition, first, until, slot, slots)
        for partition in partitions
        for slot in range(slots)
    ]


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit that was given up, and why, for a person."""

    detail: str


def tried(unit: Unit, work: Callable[[Unit], Answer]) -> Answer | Failed:
    """Return what `work` returns for a unit, or why it was given up: an exception would be told by a Java stack trace."""
    try:
        return work(unit)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return Failed(f"{name}{error.strerror or error}")
    except (OperatorError, Damaged) as error:
        return Failed(str(error))


def reach(folder: Path, unit: Unit, until: int) -> None:
    """Tell in a folder that all of a unit before a sequence is done."""
    with suppress(OSError):  # that's fine: it is only shown to somebody who waits
        descriptor = descriptor_of(folder / unit.name, os.O_WRONLY | os.O_CREAT)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"%020d" % until)


def reached(folder: Path, units: Iterable[Unit]) -> float:
    """Return the part of `units` that is told to be done, by sequences, from 0 to 1."""
    done = whole = 0
    for unit in units:
        whole += unit.until - unit.first
        with suppress(OSError, ValueError):
            done += int(read(folder / unit.name)) - unit.first
    return done / whole if whole else 1.0
