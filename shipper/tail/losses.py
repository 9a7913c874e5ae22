"""What a start cannot account for: known files that were not found again, and siblings that nobody read.

Pure rules on what the first scan showed; nothing is lost for certain, but nobody can say that all was
read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.app.units import format_size
from broker.wire.positions import Cursor
from shipper.tail.identity import Sample
from shipper.tail.scan import Archive, Notice, NoticeKind


class Unfound(NamedTuple):
    """A known file of a group that was not found."""

    cursor: Cursor
    group: str


def losses(
    unfound: Sequence[Unfound],
    left: Iterable[Sample],
    archives: Iterable[Archive],
    known: Mapping[str, Collection[Cursor]],
) -> Iterator[Notice]:
    """Yield a notice for each file of which something may be lost.

    `left` are the siblings that were not read because they seem to be older than what is known of
    their group, `known` are the cursors of each group. A sibling from before all of these is none of
    ours. Archives matter only where a file of their group was not found.
    """
    for cursor, _ in unfound:
        how = "was deleted, moved or truncated while no shipper ran and is not found again"
        text = f"{how}; what was written to it behind byte {cursor.offset} is lost, if anything was"
        yield Notice(NoticeKind.UNREAD, cursor.path, text)
    for entry in (seen.entry for seen in left):
        first = min((cursor.seen for cursor in known.get(entry.group, ())), default=None)
        if entry.size and first is not None and entry.modified > first:
            text = f"is left unread ({format_size(entry.size)}): it seems to be older than what was"
            yield Notice(NoticeKind.UNREAD, entry.path, f"{text} read of {entry.group}", entry.size)
    for archive in archives:
        since = [one.cursor.seen for one in unfound if one.group == archive.group]
        if since and archive.modified >= min(since) - _SLACK:
            text = f"is left unread ({format_size(archive.size)}): it cannot be decompressed here"
            yield Notice(NoticeKind.UNREAD, archive.path, text, archive.size)


_SLACK = 1_000_000_000
"""Nanoseconds that an archive's time may be before that of its original: some keep whole seconds."""
