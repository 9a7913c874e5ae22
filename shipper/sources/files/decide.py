"""Decides what a file is and what happens to it: a state machine without I/O.

The follower observes, `decide` decides, the catalogue acts. The first line that fits counts:

state               observation                                     new state   actions
------------------- ----------------------------------------------- ----------- -----------------
FOUND               Matched: a remembered file had its inode, bytes FOLLOWED    INHERIT its cursor
                    Unmatched: is, or was, at its live path         FOLLOWED    BEGIN (1)
                      is empty                                      LEFT        -
                      is a copy of a truncated or missing file      FOLLOWED    INHERIT its cursor
                      is a copy, or part, of a known file           COPY        -
                      is damaged, and begins like a missing file    LEFT        REPORT_DAMAGE
                      was sought by inode, or is not complete yet   LEFT        -
                      is not older than what was read of its group  FOLLOWED    BEGIN (1)
                      is older                                      LEFT        REPORT_OLDER
FOLLOWED, DELETED   SEEN: a scan saw it at a path                   FOLLOWED    -
                    DOUBTED: may have lost what was read of it      DOUBTFUL    -
FOLLOWED, DOUBTFUL  Compared: may have lost what was read of it     DOUBTFUL    -
                      has other first bytes                         REPLACED    FOLLOW_REWRITTEN
                      has the same first bytes                      unchanged   REPORT_TOUCHED
                    Sampled: has all that was read                  FOLLOWED    CONFIRM
                      has not all that was read                     REMEMBERED  REPORT_TRUNCATED
any of these        Unseen: is not open                             REMEMBERED  REPORT_GONE
                      begins with other bytes                       REMEMBERED  FOLLOW_REWRITTEN
                      is held open for longer than the limit        REMEMBERED  REPORT_EXPIRED
                      is writable (2), unread or not stored         DELETED     READ
                      is read to its end and stored                 REMEMBERED  REPORT_GONE
                    LEFT_OUT: it cannot, or must not, be followed   REMEMBERED  -

(1) LEFT with REPORT_TOO_OLD if it was not written for longer than the selection allows.
(2) It has a name somewhere, or a writer, and descriptors are not short.

A file in the states COPY and LEFT becomes FOUND again when it changes. A REMEMBERED file is
followed again when a FOUND one has its bytes.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from nats_logship.wire.positions import Cursor
from shipper.sources.files.identity import HEAD_BYTES, TAIL_BYTES, FileKey, Sample, has_head


class FileState(Enum):
    """What a file is to the follower."""

    FOUND = auto()  # a scan found the file; a sample decides
    FOLLOWED = auto()  # it has a path, and its lines are read
    DOUBTFUL = auto()  # what was read of it may be gone; it is not read until a sample decides
    DELETED = auto()  # it has no path that a scan sees, and is held open and read
    COPY = auto()  # its lines are read from another file
    LEFT = auto()  # it is not read until it changes
    REMEMBERED = auto()  # only its cursor is known; a file that has its bytes inherits the cursor
    REPLACED = auto()  # only its cursor is known, and no file can inherit it


# observations


class Sampled(NamedTuple):
    """A sample was taken of a followed file; it may have all bytes that were read of it."""

    has_all: bool


class Matched(NamedTuple):
    """A file was found that has the inode and the bytes of remembered files, of these cursors."""

    cursors: Sequence[Cursor]


class Unmatched(NamedTuple):
    """A file was found that has the inode of no remembered file; its group decides.

    `is_new`: it is not older than what was read of its group. `is_too_old`: it was not written for
    longer than the selection allows. `was_live`: it was opened at its live path when it came.
    """

    sample: Sample
    is_new: bool
    is_too_old: bool = False
    was_live: bool = False


class Compared(NamedTuple):
    """The first bytes of a file were read again, since it was written to and did not grow.

    `has_all`: a sample shows what was read of it; `is_same`: so do all its first bytes.
    """

    has_all: bool
    is_same: bool


class Unseen(NamedTuple):
    """A scan saw a followed file at no path; it is read on if it is open.

    `has_all`: what was read of it is still there. `is_overdue`: it is held for longer than the
    limit. `is_finished`: it is read to its end and was not written to for the grace. `is_stored`:
    all that was read is acknowledged. `is_writable`: it has a name somewhere, or a writer, and
    descriptors are not short, so that it may be held for a writer.
    """

    is_open: bool = False
    has_all: bool = True
    is_overdue: bool = False
    is_finished: bool = False
    is_stored: bool = False
    is_writable: bool = False


class Event(Enum):
    """Observations without facts."""

    SEEN = auto()  # a scan saw the file at a path, as large as before or larger
    DOUBTED = auto()  # what was read may be gone, or the file is read again from another position
    LEFT_OUT = auto()  # by the selection or a mark; or only its inode is known, and it moved


Observation = Matched | Unmatched | Compared | Sampled | Unseen | Event


class Action(Enum):
    """What the catalogue does when it has noted the new state."""

    INHERIT = auto()  # follow the file from the cursor of the decision
    BEGIN = auto()  # follow the file under a new id
    CONFIRM = auto()  # note what the sample shows of the file
    FOLLOW_REWRITTEN = auto()  # follow what was written over its content, as another file
    READ = auto()  # there may be something to read
    REPORT_DAMAGE = auto()
    REPORT_TOO_OLD = auto()
    REPORT_OLDER = auto()  # it is left unread, if that may be a loss
    REPORT_TOUCHED = auto()
    REPORT_TRUNCATED = auto()
    REPORT_GONE = auto()
    REPORT_EXPIRED = auto()  # it was held for as long as the limit allows


class Decision(NamedTuple):
    """The new state and what is to be done; `cursor` is that of the file whose bytes it has."""

    state: FileState
    actions: tuple[Action, ...] = ()
    cursor: Cursor | None = None


# what is known of a group


class Presence(Enum):
    """Where a known file of a group is."""

    FOLLOWED = auto()  # at a path
    DELETED = auto()  # at no path, and open
    TRUNCATED = auto()  # nowhere; another file has its inode
    MISSING = auto()  # nowhere; its inode is not there either


class Heads(NamedTuple):
    """How many first bytes of a known file must be known: short files may agree by chance.

    `min_head_to_inherit`: for another file to inherit its cursor; None if none may.
    `min_head_to_match`: for another file to be its copy.
    """

    min_head_to_inherit: int | None
    min_head_to_match: int


HEADS: Mapping[Presence, Heads] = {
    Presence.FOLLOWED: Heads(min_head_to_inherit=None, min_head_to_match=HEAD_BYTES),
    Presence.DELETED: Heads(min_head_to_inherit=None, min_head_to_match=TAIL_BYTES),
    Presence.TRUNCATED: Heads(min_head_to_inherit=0, min_head_to_match=0),
    Presence.MISSING: Heads(min_head_to_inherit=TAIL_BYTES, min_head_to_match=HEAD_BYTES),
}


class Known(NamedTuple):
    """A file of a group that is followed or remembered."""

    cursor: Cursor
    presence: Presence
    key: FileKey | None = None  # of a file that can be read

    @property
    def is_inheritable(self) -> bool:
        """Whether another file may inherit its cursor."""
        return HEADS[self.presence].min_head_to_inherit is not None


_NOT_OBSERVED = (FileState.COPY, FileState.LEFT, FileState.REMEMBERED, FileState.REPLACED)


def decide(state: FileState, observation: Observation, group: Sequence[Known] = ()) -> Decision:
    """Return what a file is from now on; `group` are the known files of the group of a found one.

    Raises ValueError for an observation that cannot be made in this state.
    """
    if state is FileState.FOUND:
        return _decide_found(observation, group)
    if state in _NOT_OBSERVED:
        raise ValueError(f"a file that is {state.name} is not observed")
    match observation:
        case Event.LEFT_OUT:
            return Decision(FileState.REMEMBERED)
        case Event():
            is_doubtful = observation is Event.DOUBTED or state is FileState.DOUBTFUL
            return Decision(FileState.DOUBTFUL if is_doubtful else FileState.FOLLOWED)
        case Sampled(has_all):
            gone = Decision(FileState.REMEMBERED, (Action.REPORT_TRUNCATED,))
            return Decision(FileState.FOLLOWED, (Action.CONFIRM,)) if has_all else gone
        case Compared():
            return _decide_compared(state, observation)
        case Unseen():
            return _decide_unseen(observation)
        case _:
            raise ValueError(f"a file that is {state.name} is not observed by {observation}")


def _decide_compared(state: FileState, compared: Compared) -> Decision:
    if not compared.has_all:
        return Decision(FileState.DOUBTFUL)
    if not compared.is_same:
        return Decision(FileState.REPLACED, (Action.FOLLOW_REWRITTEN,))
    return Decision(state, (Action.REPORT_TOUCHED,))


def _decide_unseen(unseen: Unseen) -> Decision:
    gone = FileState.REMEMBERED
    if not unseen.is_open:
        return Decision(gone, (Action.REPORT_GONE,))
    if not unseen.has_all:
        return Decision(gone, (Action.FOLLOW_REWRITTEN,))
    if unseen.is_overdue:
        return Decision(gone, (Action.REPORT_EXPIRED,))
    if unseen.is_writable or not (unseen.is_finished and unseen.is_stored):
        return Decision(FileState.DELETED, (Action.READ,))
    return Decision(gone, (Action.REPORT_GONE,))


# what a file is that was found


def _decide_found(observation: Observation, group: Sequence[Known]) -> Decision:
    match observation:
        case Matched(cursors):
            # one that ended was rewritten in place if another file was found there since
            best = max(cursors, key=lambda one: (not one.ended, one.offset, one.seen))
            return Decision(FileState.FOLLOWED, (Action.INHERIT,), best)
        case Unmatched():
            return _decide_by_group(observation, group)
        case _:
            raise ValueError(f"a file that was found is not observed by {observation}")


def _decide_by_group(found: Unmatched, group: Sequence[Known]) -> Decision:
    sample = found.sample
    if sample.entry.is_live or found.was_live:
        return _begin(found)
    if not sample.size and not sample.damage:
        return Decision(FileState.LEFT)
    if originals := [known for known in group if _may_inherit(sample, known)]:
        best = max(originals, key=lambda known: _rank_original(sample, known))
        return Decision(FileState.FOLLOWED, (Action.INHERIT,), best.cursor)
    if sample.is_in_live:
        return Decision(FileState.COPY)
    for cursor, presence, key in group:
        # another file may begin like one that is nowhere, and that it cannot be compared with
        is_part = presence is not Presence.MISSING or sample.copy_of == cursor.file
        is_like = (is_part and sample.is_part_of(cursor)) or sample.is_copy_of(cursor)
        min_head = 1 if key in sample.made_beside else HEADS[presence].min_head_to_match
        if is_like and _is_enough(sample, cursor, min_head):
            return Decision(FileState.COPY, (), cursor)
    return _decide_unlike(found, group)


def _decide_unlike(found: Unmatched, group: Sequence[Known]) -> Decision:
    """Decide on a file that is the copy of no known file of its group."""
    sample = found.sample
    missing = [known.cursor for known in group if known.is_inheritable]
    begins_alike = any(has_head(cursor, sample.head) for cursor in missing)
    if sample.damage and (begins_alike or (missing and not sample.head)):
        return Decision(FileState.LEFT, (Action.REPORT_DAMAGE,))
    # a few bytes that can be decompressed do not show whether it is a copy
    begins_alike |= any(one.cursor.identity.head_length > len(sample.head) for one in group)
    is_unfinished = not sample.size or (sample.is_partial and begins_alike)
    if sample.entry.is_sought or is_unfinished:
        return Decision(FileState.LEFT)
    return _begin(found) if found.is_new else Decision(FileState.LEFT, (Action.REPORT_OLDER,))


def _begin(found: Unmatched) -> Decision:
    if found.is_too_old:
        return Decision(FileState.LEFT, (Action.REPORT_TOO_OLD,))
    return Decision(FileState.FOLLOWED, (Action.BEGIN,))


def _is_enough(sample: Sample, cursor: Cursor, min_head: int) -> bool:
    # compressed files are seldom alike by chance
    is_sure = sample.copy_of == cursor.file or (
        min_head == TAIL_BYTES and sample.entry.compression is not None
    )
    return is_sure or cursor.identity.head_length >= min_head


def _may_inherit(sample: Sample, known: Known) -> bool:
    cursor, min_head = known.cursor, HEADS[known.presence].min_head_to_inherit
    if min_head is None:
        return False
    is_unread_original = sample.copy_of == cursor.file and not cursor.offset
    is_copy = sample.is_copy_of(cursor) and _is_enough(sample, cursor, min_head)
    return is_unread_original or is_copy


def _rank_original(sample: Sample, known: Known) -> tuple[bool, bool, int, int]:
    cursor, is_truncated = known.cursor, known.presence is Presence.TRUNCATED
    rank = cursor.offset if sample.entry.compression else is_truncated
    # one that ended may have been rewritten in place since, with the same beginning and end
    return sample.copy_of == cursor.file, not cursor.ended, rank, cursor.seen
