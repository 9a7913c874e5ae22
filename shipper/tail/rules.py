"""Decides what a file is that is not followed yet. Pure rules: the catalogue acts on them.

A rotation group is a live file with the files that it was rotated to. A file that has the inode of a remembered file of which
bytes are known, and holds them, is that file: all of a group are recognised so before `rule` is asked of the others.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from broker.wire.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, Sample, has_head


class Verdict(Enum):
    """What to do with a file that is not followed yet."""

    BEGIN = auto()  # it is new: a new id, from offset 0
    INHERIT = auto()  # take over the id and the cursor of its original, and so the unread rest
    COPY = auto()  # leave it as long as its lines are read elsewhere
    OLD = auto()  # leave it: it was rotated before we came to know its group
    EMPTY = auto()  # it may be a copy in the making
    DAMAGED = auto()  # it cannot be decompressed as far as it would have to be


class FilePresence(Enum):
    """Where a file of a group is that we know; the last two are followed no longer.

    Its values are how many first bytes must be known of it, to be inherited and to have copies: short files may agree by chance.
    """

    FOLLOWED = None, HEAD_BYTES
    DELETED = None, TAIL_BYTES  # held open without a name
    TRUNCATED = 0, 0  # another file is on its inode
    GONE = TAIL_BYTES, HEAD_BYTES  # its inode is not there


class Known(NamedTuple):
    """A file of a group that we know, and where it is."""

    cursor: Cursor
    presence: FilePresence


def rule(seen: Sample, group: Sequence[Known], *, is_new: bool) -> tuple[Verdict, Cursor | None]:
    """Decide on a file that kept no inode that we know: the first rule that fits.

    `is_new` says that it is not older than what was read of its group. Return with the verdict the cursor to read on from, or
    of the file that it is a copy of; None: of the live file.
    """
    if seen.entry.is_live:
        return Verdict.BEGIN, None
    if not seen.size and not seen.damage:
        return Verdict.EMPTY, None
    if heir_of := [known for known in group if _may_inherit(seen, known)]:
        return Verdict.INHERIT, max(heir_of, key=lambda known: _likeliness(seen, known)).cursor
    if seen.is_in_live:
        return Verdict.COPY, None
    for cursor, presence in group:
        is_like = seen.is_part_of(cursor) or seen.is_copy_of(cursor)
        if is_like and _knows_enough(seen, cursor, presence.value[1]):
            return Verdict.COPY, cursor
    return _rule_unknown(seen, group, is_new), None


def _rule_unknown(seen: Sample, group: Sequence[Known], is_new: bool) -> Verdict:
    left = [known.cursor for known in group if known.presence.value[0] is not None]
    begins_alike = any(has_head(cursor, seen.head) for cursor in left)
    if seen.damage and (begins_alike or (left and not seen.head)):
        return Verdict.DAMAGED
    if not seen.size or (seen.is_partial and begins_alike):
        return Verdict.EMPTY
    return Verdict.BEGIN if is_new else Verdict.OLD


def _knows_enough(seen: Sample, cursor: Cursor, least: int) -> bool:
    # what was compressed is seldom like another file by chance
    is_sure = seen.copy_of == cursor.file or (least == TAIL_BYTES and seen.entry.packing)
    return bool(is_sure) or cursor.identity.head_length >= least


def _may_inherit(seen: Sample, known: Known) -> bool:
    cursor, least = known.cursor, known.presence.value[0]
    if least is None:
        return False
    is_unread_original = seen.copy_of == cursor.file and not cursor.offset
    return is_unread_original or (seen.is_copy_of(cursor) and _knows_enough(seen, cursor, least))


def _likeliness(seen: Sample, known: Known) -> tuple[bool, int, int]:
    cursor, is_truncated = known.cursor, known.presence is FilePresence.TRUNCATED
    rank = cursor.offset if seen.entry.packing else is_truncated
    return seen.copy_of == cursor.file, rank, cursor.seen
