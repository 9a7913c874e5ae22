"""Which remembered files may be forgotten."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import islice

from nats_logship.wire.positions import Cursor

LONGEST_KEPT = 7 * 86_400 * 1_000_000_000
"""Nanoseconds for which a file that is gone is remembered."""
_MOST_BY_PATH = 64
_MOST_DELETED = 200
"""Deleted files that are remembered, whose compressed copies may come later."""


def find_forgettable(
    cursors: Iterable[Cursor], now: int, deleted: Collection[str] = ()
) -> list[Cursor]:
    """Return those not read for 7 days and, of one path, all but the 64 that were read last.

    `now` is in nanoseconds since the epoch. They may be forgotten once their file is gone: the
    stream, which is kept for a day, could not bring them back. A folder that is not mounted for a
    while loses nothing by it, however many files it has. A node may have thousands of pods a day:
    only the last 200 of the `deleted` files, whose ids are given oldest first, are kept.
    """
    by_path: defaultdict[str, list[Cursor]] = defaultdict(list)
    for cursor in cursors:
        by_path[cursor.path].append(cursor)
    long_deleted = set(islice(deleted, max(0, len(deleted) - _MOST_DELETED)))
    found = []
    for same in by_path.values():
        same.sort(key=lambda cursor: cursor.seen, reverse=True)
        found += same[_MOST_BY_PATH:]
        found += [
            one
            for one in same[:_MOST_BY_PATH]
            if now - one.seen > LONGEST_KEPT or one.file in long_deleted
        ]
    return found
