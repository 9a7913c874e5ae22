"""What the keeper of the stream's room has done, and what it waits for. Values only."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Expiring", "RoomReport"]


@dataclass(frozen=True, slots=True)
class Expiring:
    """A partition whose oldest message that no receiver has is near the end of its time.

    Times in RFC 3339; `hosts` are the first whose lines these are.
    """

    partition: int
    stored_at: str
    expires_at: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoomReport:
    """Since the start of this logbroker; sizes in bytes as the stream counts them, times in RFC 3339.

    `short_since` is when space began to run short, None while there is room; `waits` says that only lines are left
    that no receiver has: hosts wait then, or, where `loses_oldest`, nats-server removes the oldest of these lines
    (`discard: old`). `nearest` is the partition whose lines expire first, of those that are near it.
    """

    on_full: str
    is_keeper: bool = False
    short_since: str | None = None
    waits: bool = False
    loses_oldest: bool = False
    purged_messages: int = 0
    purged_bytes: int = 0
    dropped_messages: int = 0
    dropped_bytes: int = 0
    dropped_since: str | None = None
    nearest: Expiring | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values; the keys are the field names, and stay."""
        return asdict(self)
