"""Decides when an open file that stands at no path any more is let go, and what is said then."""

from datetime import UTC, datetime

from shipper.files.limits import Limits
from shipper.files.reading import Reading
from shipper.files.tailer import Tailer
from shipper.notice import Notice, NoticeKind

__all__ = ["departure"]

_SECOND = 1_000_000_000


def departure(tailer: Tailer, reading: Reading | None, now: int, limits: Limits) -> Notice | None:
    """Return what to say of a deleted file that is to be let go; None while it is to be kept open.

    `reading` is None where it is open no longer. It goes once it is read to its end and settled or holds other
    content than was read, and in any case when it has been held too long, since its space on disk is taken meanwhile.
    """
    if reading is not None and not tailer.suspect:
        since = tailer.unseen_since
        if since is not None and now - since > limits.hold:
            return _overdue(tailer, reading.size, since)
        if tailer.dirty or tailer.held or not tailer.is_settled(now, limits.grace):
            return None
    lost = tailer.unread
    text = f"is gone, {lost} bytes were not read" if lost else "is gone, read to its end"
    return Notice(NoticeKind.GONE, tailer.sighting.path, text, lost)


def _overdue(tailer: Tailer, size: int, since: int) -> Notice:
    lost = max(tailer.unread, size - tailer.offset)
    end = tailer.offset + lost
    text = f"was deleted before {_time(since)} and is held open no longer"
    text += f": bytes {tailer.offset} to {end} were not read" if lost else ", read to its end"
    if lost:
        text += f", and have waited since {_time(tailer.stirred)}"
    return Notice(NoticeKind.GONE, tailer.sighting.path, text, lost)


def _time(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // _SECOND, UTC)
    return moment.isoformat().replace("+00:00", "Z")
