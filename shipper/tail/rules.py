"""Decides what a file is that is not followed yet. Pure rules: the catalogue acts on them.

A rotation group is a live file with the files that it was rotated to. A file that has the inode of a remembered file of which
bytes are known, and holds them, is that file: all of a group are recognised so before `rule` is asked of the others.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from broker.wire.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, Sample, has_head

_CLOCK_SLACK = 20_000_000
"""Nanoseconds that a file's time of change may lie behind the clock: the kernel stamps files by its tick."""


class Verdict(Enum):
    """What to do with a file that is not followed yet."""

    BEGIN = auto()  # it is new: a new id, from offset 0
    INHERIT = auto()  # take over the id and the cursor of its original, and so the unread rest
    COPY = auto()  # leave it as long as its lines are read elsewhere
    OLD = auto()  # leave it: it was rotated before we came to know its group
    EMPTY = auto()  # it may be a copy in the making
    DAMAGED = auto()  # it cannot be decompressed as far as it would have to be


class FilePresence(Enum):
    """Where a file of a group is that we know; the last two are followed no longer, only a compressed file is damaged."""

    FOLLOWED = auto()
    DELETED = auto()  # held open without a name
    TRUNCATED = auto()  # another file is on its inode
    GONE = auto()  # its inode is not there


# Short files may agree by chance: so many bytes of a beginning must agree. Of a compressed file 64 need not.
_TO_INHERIT = {FilePresence.TRUNCATED: 0, FilePresence.GONE: TAIL_BYTES}
_TO_BE_A_COPY = {
    FilePresence.FOLLOWED: HEAD_BYTES,
    FilePresence.DELETED: TAIL_BYTES,
    FilePresence.TRUNCATED: 0,
    FilePresence.GONE: HEAD_BYTES,
}


class Known(NamedTuple):
    """A file of a group that we know, and where it is."""

    cursor: Cursor
    presence: FilePresence


@dataclass(slots=True)
class RotationGroup:
    """What is known of a candidate's group.

    `oldest` is the age of the oldest rotated file that is followed, `newest` when the group was last read, or last
    scanned if that is earlier, in nanoseconds; None when there is none.
    """

    known: Sequence[Known]
    oldest: tuple[int, int, str] | None
    newest: int | None


def rule(seen: Sample, group: RotationGroup) -> tuple[Verdict, Cursor | None]:
    """Decide on a file that kept no inode that we know: the first rule that fits.

    Return with it the cursor to read on from, or of the file that it is a copy of; None: of the live file.
    """
    if seen.entry.is_live:
        return Verdict.BEGIN, None
    if not seen.size and not seen.damage:
        return Verdict.EMPTY, None
    if heir_of := [known for known in group.known if _may_inherit(seen, known)]:
        return Verdict.INHERIT, _best(seen, heir_of)
    if seen.is_in_live:
        return Verdict.COPY, None
    for cursor in (known.cursor for known in group.known if _agrees(seen, known, _TO_BE_A_COPY)):
        if seen.is_part_of(cursor) or seen.is_copy_of(cursor):
            return Verdict.COPY, cursor
    return _rule_unknown(seen, group), None


def _rule_unknown(seen: Sample, group: RotationGroup) -> Verdict:
    left = [known.cursor for known in group.known if known.presence in _TO_INHERIT]
    begins_alike = any(has_head(cursor, seen.head) for cursor in left)
    if seen.damage and (begins_alike or (left and not seen.head)):
        return Verdict.DAMAGED
    if not seen.size or (seen.is_partial and begins_alike):
        return Verdict.EMPTY
    if seen.entry.wanted or (group.oldest and seen.entry.age > group.oldest):
        return Verdict.BEGIN
    is_new = group.newest is not None and seen.entry.modified + _CLOCK_SLACK >= group.newest
    return Verdict.BEGIN if is_new else Verdict.OLD


def _agrees(seen: Sample, known: Known, least: Mapping[FilePresence, int]) -> bool:
    length = least.get(known.presence, sys.maxsize)
    if seen.copy_of == known.cursor.file or (length == TAIL_BYTES and seen.entry.packing):
        length = 0
    return known.cursor.identity.head_length >= length


def _may_inherit(seen: Sample, known: Known) -> bool:
    if known.presence not in _TO_INHERIT:
        return False
    is_unread_original = seen.copy_of == known.cursor.file and not known.cursor.offset
    return is_unread_original or (
        _agrees(seen, known, _TO_INHERIT) and seen.is_copy_of(known.cursor)
    )


def _best(seen: Sample, heir_of: Sequence[Known]) -> Cursor:
    def likeliness(known: Known) -> tuple[bool, int, int]:
        cursor, is_truncated = known.cursor, known.presence is FilePresence.TRUNCATED
        rank = cursor.offset if seen.entry.packing else is_truncated
        return seen.copy_of == cursor.file, rank, cursor.seen

    return max(heir_of, key=likeliness).cursor
