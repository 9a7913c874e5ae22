"""How the stream's limit follows the disk below it. Decides only.

The server counts messages, the disk counts files: one whose messages are half gone is as large as before, so a stream
whose receivers are not all there may take up to twice what it holds. A disk that is full stops the stream for good.
"""

from dataclasses import dataclass

__all__ = ["Disk", "Limit", "follow"]


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the store, in bytes: what is free, and what is to stay free."""

    free: int
    reserve: int

    @property
    def is_short(self) -> bool:
        """Whether half of the reserve is used up."""
        return self.free < self.reserve // 2

    @property
    def is_well(self) -> bool:
        """Whether there is as much free again as there is to be."""
        return self.free >= self.reserve


@dataclass(frozen=True, slots=True)
class Limit:
    """The stream's limit in bytes, -1 for none, and what it was before the disk ran short; None while it did not."""

    now: int
    before: int | None = None


def follow(limit: Limit, held: int, disk: Disk) -> Limit:
    """Return what the limit should be for a stream that holds so many bytes: no more than that while the disk is short.

    Somebody who has changed it meanwhile gets it back as he left it.
    """
    if disk.is_short:
        before = limit.now if limit.before is None else limit.before
        return Limit(min(max(held, 1), before if before > 0 else held + 1), before)
    if limit.before is not None and disk.is_well:
        return Limit(limit.before)
    return limit
