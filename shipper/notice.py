"""What the file side has to tell a person: a value for the log, said once per change."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Notice", "NoticeKind"]


class NoticeKind(Enum):
    """What happened to a file; `is_trouble` tells the states that keep it from being read."""

    FOUND = "found"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    ROTATED = "rotated"
    TRUNCATED = "truncated"
    REPLACED = "replaced"
    GONE = "gone"
    DAMAGED = "damaged"
    UNWATCHED = "unwatched"
    AGED = "aged"

    @property
    def is_trouble(self) -> bool:
        """Whether it is a state that lasts until someone mends it, and not an event."""
        return self in {NoticeKind.MISSING, NoticeKind.UNREADABLE, NoticeKind.REFUSED}


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence on a path; `text` is what to say after the path. `lost` counts bytes that were never read."""

    kind: NoticeKind
    path: str
    text: str
    lost: int = 0
