"""What the tail side has to tell a person: values for the log, said once per change."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

__all__ = ["Notice", "NoticeKind", "Troubles", "announce", "rfc3339"]


class NoticeKind(Enum):
    """What happened to a file; `is_trouble` tells the states that keep it from being read."""

    FOUND = "found"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    ROTATED = "rotated"
    TRUNCATED = "truncated"
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


_WARNED = {NoticeKind.TRUNCATED, NoticeKind.GONE, NoticeKind.DAMAGED, NoticeKind.UNWATCHED}
logger = logging.getLogger(__name__)


def announce(notices: Iterable[Notice]) -> None:
    """Log each of these."""
    for notice in notices:
        troubled = notice.kind.is_trouble or notice.kind in _WARNED or notice.lost
        level = logging.WARNING if troubled else logging.INFO
        logger.log(level, "%s: %s", notice.path, notice.text)


class Troubles:
    """The troubles that last."""

    def __init__(self) -> None:
        self._now: set[Notice] = set()

    def changes(self, troubles: Iterable[Notice]) -> list[Notice]:
        """Take the troubles of a look; return those that the last look did not have."""
        before, self._now = self._now, set(troubles)
        return _sorted(self._now - before)

    def now(self) -> list[Notice]:
        """Return the troubles of the last look."""
        return _sorted(self._now)


def rfc3339(nanoseconds: int) -> str:
    """Write a moment in UTC, to the second."""
    return f"{datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _sorted(notices: Iterable[Notice]) -> list[Notice]:
    return sorted(notices, key=lambda notice: (notice.path, notice.text))
