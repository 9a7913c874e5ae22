"""Finds what may be lost at a start: known files that are missing, and siblings that are unread.

Pure functions of what the scan showed. It is not certain that something is lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from nats_logship.app.units import format_size
from nats_logship.wire.positions import Cursor
from shipper.sources.files.identity import FileEntry
from shipper.sources.notices import Notice, NoticeKind


def report_unfound(
    unfound: Sequence[tuple[Cursor, str]],
    left: Iterable[FileEntry],
    archives: Iterable[FileEntry],
) -> Iterator[Notice]:
    """Yield a notice for each known file that was not found, and for each archive it may be in.

    `unfound` are the cursors of these files, each with the group.
    `left` are unread siblings: the file may have been copied to one of them.
    """
    beside = defaultdict(list)
    for entry in sorted(left, key=lambda entry: entry.modified, reverse=True):
        beside[entry.group].append(f"{entry.path} ({format_size(entry.size)})")
    for cursor, group in unfound:
        how = "was deleted, moved or truncated while no shipper ran and is not found again"
        text = f"{how}; what was written to it behind byte {cursor.offset} is lost, if anything was"
        if names := ", ".join(beside[group][:_NAMED]):
            text = f"{text}; these are left unread: {names}"
        if (more := len(beside[group]) - _NAMED) > 0:
            text = f"{text} and {more} more"
        yield Notice(NoticeKind.UNREAD, cursor.path, text)
    for archive in archives:
        since = [cursor.seen for cursor, group in unfound if group == archive.group]
        if since and archive.modified >= min(since) - _SLACK:
            text = f"is left unread ({format_size(archive.size)}): it cannot be decompressed here"
            yield Notice(NoticeKind.UNREAD, archive.path, text, archive.size)


def report_sibling(entry: FileEntry, known: Iterable[Cursor]) -> Iterator[Notice]:
    """Yield a notice for a sibling that is not read, since it seems older than what was read.

    A file that was written before everything known of its group is not reported.
    """
    first = min((cursor.seen for cursor in known), default=None)
    if first is not None and entry.modified > first:
        text = (
            f"is left unread ({format_size(entry.size)}): it seems to be older than what was read"
        )
        yield Notice(NoticeKind.UNREAD, entry.path, f"{text} of {entry.group}", entry.size)


_NAMED = 5
_SLACK = 1_000_000_000
"""Nanoseconds by which an archive may be older than its original: some keep whole seconds."""
