"""Which lines are wanted: hosts and files by glob, and how many tasks share the hosts of a partition. Decides only."""

import re
import zlib
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

__all__ = ["Selection", "Unit", "cut_evenly"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Globs of hosts and of files; none means all. `*` takes in dots and slashes, letters count in their case.

    A glob of files without a slash is one of names, whatever their folder. Lines of no known file match no glob of files.
    """

    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def wants_host(self, host: str) -> bool:
        """Whether the lines of a host are wanted."""
        return not self.hosts or any(_pattern(glob).match(host) for glob in self.hosts)

    def wants_file(self, file: str) -> bool:
        """Whether the lines of a file are wanted; `file` is empty where it is not known."""
        if not self.files:
            return True
        name = file.rpartition("/")[2]
        return any(
            _pattern(glob).match(file if "/" in glob else name) for glob in self.files if file
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """What one task reads: sequences `[first, until)` of a partition, and of its hosts the `slot`th of `slots` parts."""

    partition: int
    first: int
    until: int
    slot: int = 0
    slots: int = 1

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


@cache
def _pattern(glob: str) -> "re.Pattern[str]":
    return re.compile(translate(glob))
