"""What the tail side has to tell a person: values for the log."""

import logging
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class NoticeKind(Enum):
    """What happened to a file."""

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


class Notice(NamedTuple):
    """One sentence on a path; `text` is what to say after the path. `lost` counts bytes that were never read."""

    kind: NoticeKind
    path: str
    text: str
    lost: int = 0


_INFORMED = {NoticeKind.FOUND, NoticeKind.ROTATED, NoticeKind.AGED}
logger = logging.getLogger(__name__)


def announce(notices: Iterable[Notice]) -> None:
    """Log each of these."""
    for notice in notices:
        level = logging.INFO if notice.kind in _INFORMED else logging.WARNING
        logger.log(level, "%s: %s", notice.path, notice.text)
