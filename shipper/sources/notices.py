"""What a source reports of a path: for the log, the counters of lost bytes and the status."""

import logging
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

logger = logging.getLogger(__name__)


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
    VACUUMED = "vacuumed"
    CUT = "cut"
    UNREAD = "unread"
    CONTENT = "content"


class Notice(NamedTuple):
    """One sentence: the path is its subject, `text` the rest.

    `lost` counts bytes never read, or entries of a journal that was vacuumed. `is_total`: it counts
    all of its path so far, and replaces the one before.
    """

    kind: NoticeKind
    path: str
    text: str
    lost: int = 0
    is_total: bool = False

    @property
    def option(self) -> str:
        """The option that names the path; that of a journal is no absolute one."""
        return "--journal-directory" if self.path.startswith("journal") else "--file"


_INFORMATION = {NoticeKind.FOUND, NoticeKind.ROTATED, NoticeKind.AGED, NoticeKind.GONE}


def log_notices(notices: Iterable[Notice]) -> None:
    """Log each notice: as information if no bytes are lost and it is of an ordinary kind."""
    for notice in notices:
        is_ordinary = notice.kind in _INFORMATION and not notice.lost
        level = logging.INFO if is_ordinary else logging.WARNING
        logger.log(level, "%s: %s", notice.path, notice.text)
