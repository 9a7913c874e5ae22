"""Decides what a file is that is not followed yet. Pure rules: the catalogue acts on them.

A rotation group is a live file with the files that it was rotated to. "Truncated" and "gone" files are those of the group that
are followed no longer; only a compressed file is damaged. The first row that fits decides:

| candidate                                                                                       | outcome  |
|-------------------------------------------------------------------------------------------------|----------|
| has the inode of a remembered file of which bytes were read, and holds what was read            | CONTINUE |
| is at the live path, with the inode of a remembered file of the group of which nothing was read | CONTINUE |
| is at the live path                                                                             | BEGIN    |
| is empty, and not damaged                                                                       | EMPTY    |
| holds all that was read of a truncated or gone file                                             | INHERIT  |
| begins like the live file, and ends like a part of it or (compressed) has no end yet            | COPY     |
| holds what was read of any file of the group, or is shorter than that and begins like it        | COPY     |
| is not compressed, with the inode of a truncated or gone file of which nothing was read         | CONTINUE |
| is damaged, and begins like a truncated or gone file                                            | DAMAGED  |
| is damaged without a readable beginning, and the group has a truncated or gone file             | DAMAGED  |
| is damaged, and no byte of it can be read                                                       | EMPTY    |
| is compressed, begins like a truncated or gone file, and has no end yet                         | EMPTY    |
| is shown by a pattern                                                                           | BEGIN    |
| is younger than what is known of the group, and no old file that has just been compressed       | BEGIN    |
| any other                                                                                       | OLD      |

Short files may agree by chance. So many bytes of a beginning must agree, unless the candidate was seen beside its original:

| known file                           | to INHERIT           | to be its COPY       |
|--------------------------------------|----------------------|----------------------|
| truncated: another file on its inode | any                  | any                  |
| gone: its inode is not there         | 64 (compressed: any) | 1,024                |
| deleted: held open without a name    | never                | 64 (compressed: any) |
| followed                             | never                | 1,024                |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.wire.positions import Cursor
from shipper.tail.candidates import Candidate, Known, Presence, RotationGroup
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, Match, has_head
from shipper.tail.probe import Sample

__all__ = ["Ruling", "Verdict", "content_start", "recognise", "rule"]


class Verdict(Enum):
    """What to do with a file that is not followed yet."""

    CONTINUE = auto()
    """It is a remembered file: read on at its cursor."""
    BEGIN = auto()
    """It is new: a new id, from offset 0."""
    INHERIT = auto()
    """It is the copy of a file that was truncated or is gone: takes over its id and cursor, and so its unread rest."""
    COPY = auto()
    """It is a copy of lines that are read elsewhere: leave it as long as they are."""
    OLD = auto()
    """It was rotated before we came to know its group: leave it."""
    EMPTY = auto()
    """It holds nothing, or too little: it may be a copy in the making."""
    DAMAGED = auto()
    """It cannot be decompressed as far as it would have to be."""


_NOT_FOLLOWED = {Presence.TRUNCATED, Presence.GONE}


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, with the cursor to read on from, or of the file that it is a copy of; None: of the live file.

    `others` are cursors of agents that found the same file and read nothing of it: a copy would be taken for theirs.
    """

    verdict: Verdict
    cursor: Cursor | None = None
    others: tuple[Cursor, ...] = ()


def recognise(candidate: Candidate, cursors: Iterable[Cursor]) -> Ruling | None:
    """Decide whether a file is that of a remembered cursor with the same inode; None when it is not.

    All files of a group must have been asked this before `rule` is asked of any.
    """
    same = [cursor for cursor in cursors if candidate.match(cursor) is Match.SAME]
    if not same:
        return None
    best = max(same, key=lambda cursor: (cursor.offset, cursor.seen))
    others = (c for c in same if c.path == best.path and not c.offset and c != best)
    return Ruling(Verdict.CONTINUE, best, tuple(others))


def rule(candidate: Candidate, group: RotationGroup) -> Ruling:
    """Decide on a file that kept no inode that we know: the first row of the table that fits."""
    if candidate.entry.is_live:
        return Ruling(Verdict.BEGIN)
    if not candidate.seen.size and not candidate.seen.damage:
        return Ruling(Verdict.EMPTY)
    if heir_of := [known for known in group.known if _may_inherit(candidate, known)]:
        return Ruling(Verdict.INHERIT, _best(candidate, heir_of))
    if group.live is not None and candidate.is_beginning_of(group.live):
        return Ruling(Verdict.COPY)
    copy_of = next((known for known in group.known if _is_copy(candidate, known)), None)
    if copy_of is not None:
        return Ruling(Verdict.COPY, copy_of.cursor)
    blank = (k.cursor for k in group.known if k.presence in _NOT_FOLLOWED)
    same = next((cursor for cursor in blank if candidate.has_only_inode_of(cursor)), None)
    return Ruling(Verdict.CONTINUE, same) if same else Ruling(_rule_unknown(candidate, group))


def content_start(seen: Sample, offsets: Iterable[int]) -> int:
    """Return where the content of a file begins: behind the hole of a writer that kept its offset, else 0.

    A hole of less than a block shows only as NULs. They are one when lines were read on this inode before, up to one of
    the `offsets`, and no more bytes of them than there are NULs.
    """
    if not seen.begin or seen.hole:
        return seen.begin
    return seen.begin if any(0 < offset <= seen.begin for offset in offsets) else 0


def _rule_unknown(candidate: Candidate, group: RotationGroup) -> Verdict:
    entry, seen = candidate.entry, candidate.seen
    left = [known.cursor for known in group.known if known.presence in _NOT_FOLLOWED]
    begins_alike = any(has_head(cursor, seen.head) for cursor in left)
    if seen.damage and (begins_alike or (left and not seen.head)):
        return Verdict.DAMAGED
    if not seen.size or (seen.is_partial and begins_alike):
        return Verdict.EMPTY
    is_new = entry.wanted or (group.came_before(entry) and not candidate.was_left)
    return Verdict.BEGIN if is_new else Verdict.OLD


def _may_inherit(candidate: Candidate, known: Known) -> bool:
    cursor, is_original = known.cursor, candidate.copy_of == known.cursor.file
    if known.presence not in _NOT_FOLLOWED:
        return False
    if is_original and not cursor.offset:
        return True
    some = TAIL_BYTES if candidate.entry.packed is None else 0
    least = 0 if is_original or known.presence is Presence.TRUNCATED else some
    return cursor.identity.head_length >= least and candidate.holds(cursor)


def _best(candidate: Candidate, heir_of: Sequence[Known]) -> Cursor:
    def likeliness(known: Known) -> tuple[bool, int, int]:
        cursor = known.cursor
        is_original = candidate.copy_of == cursor.file
        if candidate.entry.packed is None:
            return is_original, known.presence is Presence.TRUNCATED, cursor.seen
        return is_original, cursor.offset, cursor.seen

    return max(heir_of, key=likeliness).cursor


def _is_copy(candidate: Candidate, known: Known) -> bool:
    cursor = known.cursor
    least = HEAD_BYTES
    if candidate.copy_of == cursor.file or known.presence is Presence.TRUNCATED:
        least = 0
    elif known.presence is Presence.DELETED:
        least = TAIL_BYTES if candidate.entry.packed is None else 0
    if cursor.identity.head_length < least:
        return False
    return candidate.is_part_of(cursor) or candidate.holds(cursor)
