"""Decides which cursors without a file may be forgotten, so that a host that runs for years remembers no more than it needs."""

from collections import defaultdict
from collections.abc import Iterable

from shipper.cursor import Cursor

__all__ = ["forgettable"]

_KEPT = 7 * 86_400 * 1_000_000_000  # nanoseconds
_KEPT_BY_PATH = 64


def forgettable(cursors: Iterable[Cursor], now: int) -> list[Cursor]:
    """Return those that were not read for 7 days and, of one path, all but the 64 that were read last.

    `now` is in nanoseconds. A folder that is not mounted for a while loses nothing by it, however many files it has.
    """
    by_path: defaultdict[str, list[Cursor]] = defaultdict(list)
    for cursor in cursors:
        by_path[cursor.path].append(cursor)
    found = []
    for same in by_path.values():
        same.sort(key=lambda cursor: cursor.seen, reverse=True)
        found += same[_KEPT_BY_PATH:]
        found += [cursor for cursor in same[:_KEPT_BY_PATH] if now - cursor.seen > _KEPT]
    return found
