"""Says in the log what became of files. What a person may have to act on is a warning."""

import logging
from collections.abc import Iterable

from shipper.notice import Notice, NoticeKind

__all__ = ["announce"]

_WARNED = {
    NoticeKind.TRUNCATED,
    NoticeKind.GONE,
    NoticeKind.DAMAGED,
    NoticeKind.UNWATCHED,
}
logger = logging.getLogger(__name__)


def announce(notices: Iterable[Notice]) -> None:
    """Log each of these."""
    for notice in notices:
        troubled = notice.kind.is_trouble or notice.kind in _WARNED or notice.lost
        level = logging.WARNING if troubled else logging.INFO
        logger.log(level, "%s: %s", notice.path, notice.text)
