"""Decides what a file is that is not followed yet. Pure rules: the catalogue acts on them.

A rotation group is a live file with the files that it was rotated to. "Truncated" and "gone" files are those of the group that
are followed no longer; only a compressed file is damaged. A file that has the inode of a remembered file of which bytes are
known, and holds them, is that file (`recognise`). Of the others the first row that fits decides:

| candidate                                                                                       | outcome  |
|-------------------------------------------------------------------------------------------------|----------|
| is at the live path                                                                             | BEGIN    |
| is empty, and not damaged                                                                       | EMPTY    |
| holds all that was read of a truncated or gone file                                             | INHERIT  |
| begins like the live file, and ends like a part of it or (compressed) has no end yet            | COPY     |
| holds what was read of any file of the group, or is shorter than that and begins like it        | COPY     |
| is damaged, and begins like a truncated or gone file                                            | DAMAGED  |
| is damaged without a readable beginning, and the group has a truncated or gone file             | DAMAGED  |
| is damaged, and no byte of it can be read                                                       | EMPTY    |
| is compressed, begins like a truncated or gone file, and has no end yet                         | EMPTY    |
| is shown by a pattern                                                                           | BEGIN    |
| is younger than what is known of the group                                                      | BEGIN    |
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
    """Where a file of a group is that we know: a deleted one is held open, the last two are followed no longer."""

    FOLLOWED = auto()
    DELETED = auto()
    TRUNCATED = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Known:
    """A file of a group that we know, and where it is."""

    cursor: Cursor
    presence: FilePresence

    @property
    def is_left(self) -> bool:
        """Whether its lines are not read where it is."""
        return self.presence in {FilePresence.TRUNCATED, FilePresence.GONE}


@dataclass(slots=True)
class RotationGroup:
    """What is known of a candidate's group.

    `oldest` is the age of the oldest rotated file that is followed, `newest` when the group was last read, or last
    scanned if that is earlier, in nanoseconds; None when there is none.
    """

    known: Sequence[Known]
    oldest: tuple[int, int, str] | None
    newest: int | None


def recognise(seen: Sample, cursors: Iterable[Cursor]) -> list[Cursor]:
    """Return the remembered cursors that are of this file, which has their inode, the best first; it is read on there.

    All files of a group must have been asked this before `rule` is asked of any.
    """
    same = [cursor for cursor in cursors if seen.has_all(cursor)]
    return sorted(same, key=lambda cursor: (cursor.offset, cursor.seen), reverse=True)


def rule(seen: Sample, group: RotationGroup) -> tuple[Verdict, Cursor | None]:
    """Decide on a file that kept no inode that we know: the first row of the table that fits.

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
    copy_of = next((known for known in group.known if _is_copy(seen, known)), None)
    if copy_of is not None:
        return Verdict.COPY, copy_of.cursor
    return _rule_unknown(seen, group), None


def _rule_unknown(seen: Sample, group: RotationGroup) -> Verdict:
    left = [known.cursor for known in group.known if known.is_left]
    begins_alike = any(has_head(cursor, seen.head) for cursor in left)
    if seen.damage and (begins_alike or (left and not seen.head)):
        return Verdict.DAMAGED
    if not seen.size or (seen.is_partial and begins_alike):
        return Verdict.EMPTY
    if seen.entry.wanted or (group.oldest and seen.entry.age > group.oldest):
        return Verdict.BEGIN
    is_new = group.newest is not None and seen.entry.modified + _CLOCK_SLACK >= group.newest
    return Verdict.BEGIN if is_new else Verdict.OLD


def _may_inherit(seen: Sample, known: Known) -> bool:
    cursor, is_original = known.cursor, seen.copy_of == known.cursor.file
    if not known.is_left:
        return False
    if is_original and not cursor.offset:
        return True
    some = TAIL_BYTES if seen.entry.packing is None else 0
    least = 0 if is_original or known.presence is FilePresence.TRUNCATED else some
    return cursor.identity.head_length >= least and seen.holds(cursor)


def _best(seen: Sample, heir_of: Sequence[Known]) -> Cursor:
    def likeliness(known: Known) -> tuple[bool, int, int]:
        cursor = known.cursor
        is_original = seen.copy_of == cursor.file
        if seen.entry.packing is None:
            return is_original, known.presence is FilePresence.TRUNCATED, cursor.seen
        return is_original, cursor.offset, cursor.seen

    return max(heir_of, key=likeliness).cursor


def _is_copy(seen: Sample, known: Known) -> bool:
    cursor, least = known.cursor, HEAD_BYTES
    if seen.copy_of == cursor.file or known.presence is FilePresence.TRUNCATED:
        least = 0
    elif known.presence is FilePresence.DELETED:
        least = TAIL_BYTES if seen.entry.packing is None else 0
    if cursor.identity.head_length < least:
        return False
    return seen.is_part_of(cursor) or seen.holds(cursor)
