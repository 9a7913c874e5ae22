"""How the tasks of a replay share the hosts of a partition. Decides only."""

import zlib
from dataclasses import dataclass

__all__ = ["Unit", "cut_evenly"]


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
