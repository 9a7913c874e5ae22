"""Decides what a file is that is not followed yet: one we know, a new one, a copy, or one from before our time.

A rotation group is a live file with its rotated siblings. Pure rules: the catalogue acts on them.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum, auto

from shipper.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, LastLine, Match, has_head, judge
from shipper.tail.paths import age
from shipper.tail.scan import FileEntry

__all__ = [
    "Candidate",
    "Chain",
    "Ruling",
    "Verdict",
    "came_after",
    "is_beginning",
    "is_heir_at_0",
    "namesakes",
    "rule",
    "rule_compressed",
    "rule_known",
    "rule_rotated",
]

_CLOCK_SLACK = 20_000_000
"""Nanoseconds that a file's time of change may lie behind the clock: the kernel stamps files by its tick."""


class Verdict(Enum):
    """What to do with a file that is not followed yet."""

    CONTINUE = auto()
    """Known under its cursor: go on there."""
    BEGIN = auto()
    """Never seen: a new id, from offset 0."""
    INHERIT = auto()
    """The copy of a file that was truncated: takes over its id and cursor, and so its unread rest."""
    COPY = auto()
    """A copy of lines that are read elsewhere, or were: leave it, and look again next time."""
    OLD = auto()
    """Rotated before we came to know its group: leave it."""
    EMPTY = auto()
    """A sibling with nothing in it, or too little: it may be a copy in the making."""
    DAMAGED = auto()
    """A compressed sibling that cannot be unpacked as far as it would have to be."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to decide on; `tails` holds, by file id, what stands before the offset of each likely cursor.

    `ends` holds, by size, what stands before the size that a copy has; `copy_of` is the file that it
    was a beginning of when both were seen. `last` is where it is to begin, should it be
    new, if not at 0. The rest is what `Sample` tells of compressed files and of holes.
    """

    entry: FileEntry
    head: bytes
    tails: Mapping[str, bytes]
    ends: Mapping[int, bytes]
    copy_of: str | None = None
    ended: Set[str] = frozenset()
    is_partial: bool = False
    damage: str = ""
    last: LastLine | None = None
    hole: int = 0
    begin: int = 0

    @property
    def order(self) -> tuple[bool, tuple[int, int, str]]:
        """What the candidates of a group are judged by in turn: the live one first, then the oldest."""
        entry = self.entry
        return not entry.is_live, age(entry.modified, entry.path)

    def judged(self, cursor: Cursor) -> Match:
        """Return what this file is to a cursor."""
        key = self.entry.key
        if cursor.file in self.ended:
            return Match.SAME if key.inode == cursor.identity.inode else Match.COPY
        is_there = key.inode == cursor.identity.inode
        if self.hole and cursor.offset < self.begin and (cursor.offset or not is_there):
            # whatever was read of it stood before its first byte; and all holes look alike
            return Match.TRUNCATED if is_there else Match.OTHER
        tail = self.tails.get(cursor.file, b"")
        return judge(cursor, key.inode, self.entry.size, self.head, tail)


@dataclass(frozen=True, slots=True)
class Chain:
    """What is known of a candidate's group.

    `live` is the file at the live path, if it still holds what was read of it, `followed` the cursor that it is
    followed by. `truncated` are the cursors whose inode
    is there and holds other bytes, `gone` those whose inode is not there, `unseen` those of
    open files that have no name any more, `cursors` all. `oldest` is the age of the oldest rotated file that is followed,
    `newest` when the group was last read, or last looked at if that is earlier, in nanoseconds; None when there is none.
    """

    live: Candidate | None
    truncated: tuple[Cursor, ...]
    gone: tuple[Cursor, ...]
    unseen: tuple[Cursor, ...]
    cursors: tuple[Cursor, ...]
    oldest: tuple[int, int, str] | None
    newest: int | None
    followed: Cursor | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, with the cursor to go on from where there is one."""

    verdict: Verdict
    cursor: Cursor | None = None


def rule_known(candidate: Candidate, cursors: Iterable[Cursor]) -> Ruling | None:
    """Return how to go on with a file that is one of the cursors' and kept its inode; None when it is not.

    All files of a group must have been asked this before `rule_rotated` is asked of any.
    """
    same = [cursor for cursor in cursors if candidate.judged(cursor) is Match.SAME]
    if not same:
        return None
    return Ruling(Verdict.CONTINUE, max(same, key=lambda cursor: (cursor.offset, cursor.seen)))


def namesakes(candidate: Candidate, known: Ruling, cursors: Iterable[Cursor]) -> list[Cursor]:
    """Return the other cursors of a known file that kept its inode: by which it was found, and nothing was read."""
    path = known.cursor.path if known.cursor else ""
    same = (c for c in cursors if c.path == path and candidate.judged(c) is Match.SAME)
    return [cursor for cursor in same if cursor.offset == 0 and cursor != known.cursor]


def rule_rotated(candidate: Candidate, chain: Chain) -> Ruling:
    """Decide on a rotated sibling that kept no inode that we know.

    One that was never read is new when it is younger than a file that we know, since those that were there before
    us are older than all of them; when none is left to compare with, when it was written after we last read.
    """
    if not candidate.entry.size:
        return Ruling(Verdict.EMPTY)
    for cursor in (*chain.truncated, *chain.gone):
        if _is_heir(candidate, cursor, chain):
            return Ruling(Verdict.INHERIT, cursor)
    if _is_copy(candidate, chain):
        return Ruling(Verdict.COPY)
    new = candidate.entry.wanted or came_after(candidate.entry, chain)
    return Ruling(Verdict.BEGIN if new else Verdict.OLD)


def _is_copy(candidate: Candidate, chain: Chain) -> bool:
    return (
        (chain.live is not None and is_beginning(candidate, chain.live))
        or any(_was_read(candidate, cursor) for cursor in chain.truncated)
        or any(_is_left_copy(candidate, cursor, chain) for cursor in chain.cursors)
    )


def came_after(entry: FileEntry, chain: Chain) -> bool:
    """Whether a sibling that was never read is younger than what is known of its group."""
    if chain.oldest is not None and age(entry.modified, entry.path) > chain.oldest:
        return True
    return chain.newest is not None and entry.modified + _CLOCK_SLACK >= chain.newest


def is_heir_at_0(candidate: Candidate, cursor: Cursor) -> bool:
    """Whether a sibling was seen as the copy of a file of which nothing was read."""
    return candidate.copy_of == cursor.file and cursor.offset == 0


def _is_heir(candidate: Candidate, cursor: Cursor, chain: Chain) -> bool:
    if is_heir_at_0(candidate, cursor):
        return True
    # a few bytes in common with a file that is gone may be chance
    likely = candidate.copy_of == cursor.file or cursor.identity.head_length >= TAIL_BYTES
    return (likely or cursor in chain.truncated) and candidate.judged(cursor) is Match.COPY


def is_beginning(candidate: Candidate, live: Candidate) -> bool:
    """Whether a sibling may be a copy of the live file: it begins like that, and ends as that goes on."""
    # a copy may still be growing, and the live file may have grown since
    head = live.head[: len(candidate.head)]
    # holes that two files begin with are alike, and say nothing of what stands behind them
    hole = min(candidate.begin, candidate.entry.size - 1)
    both = candidate.ends.keys() & live.ends.keys()
    sizes = [size for size in both if not 0 < size <= hole]
    return head == candidate.head and any(candidate.ends[n] == live.ends[n] for n in sizes)


def _was_read(candidate: Candidate, cursor: Cursor) -> bool:
    # lines written between the copy and the truncation, which we read, make the copy shorter than the offset
    if candidate.entry.size >= cursor.offset:
        return False
    return candidate.copy_of == cursor.file or has_head(cursor, candidate.head)


def _is_left_copy(candidate: Candidate, cursor: Cursor, chain: Chain) -> bool:
    # one that stayed when its original was renamed, or that a person made; one that we did not see beside its
    # original is judged only by a whole kilobyte, since less may be a common host_subject
    enough = TAIL_BYTES if cursor in chain.unseen else HEAD_BYTES
    if candidate.copy_of != cursor.file and cursor.identity.head_length < enough:
        return False
    return _was_read(candidate, cursor) or candidate.judged(cursor) is Match.COPY


def rule_compressed(candidate: Candidate, chain: Chain) -> Ruling:
    """Decide on a compressed sibling that kept no inode that we know.

    Compressing gives every file a new inode, also a short one: that all bytes which were read stand there is enough
    for a file that is gone; of several the one that was read furthest.
    """
    homeless = (*chain.truncated, *chain.gone)
    heirs = [c for c in homeless if is_heir_at_0(candidate, c) or _holds(candidate, c)]
    if heirs:
        return Ruling(Verdict.INHERIT, max(heirs, key=lambda c: (c.offset, c.seen)))
    if copy := _copy(candidate, chain):
        return copy
    likely = [cursor for cursor in homeless if has_head(cursor, candidate.head)]
    if candidate.damage and (likely or (homeless and not candidate.head)):
        return Ruling(Verdict.DAMAGED, max(likely, key=lambda c: c.offset, default=None))
    if not candidate.entry.size or (candidate.is_partial and likely):
        return Ruling(Verdict.EMPTY)
    return Ruling(Verdict.BEGIN if came_after(candidate.entry, chain) else Verdict.OLD)


def _copy(candidate: Candidate, chain: Chain) -> Ruling | None:
    if candidate.head and chain.live is not None:
        growing = candidate.is_partial and chain.live.head.startswith(candidate.head)
        if growing or is_beginning(candidate, chain.live):
            return Ruling(Verdict.COPY, chain.followed)
    sure = [
        cursor
        for cursor in chain.cursors
        if cursor.identity.head_length >= HEAD_BYTES or cursor in chain.truncated
    ]
    for cursor in (*chain.unseen, *sure):
        if _holds(candidate, cursor) or _is_part(candidate, cursor):
            return Ruling(Verdict.COPY, cursor)
    return None


def _holds(candidate: Candidate, cursor: Cursor) -> bool:
    return candidate.judged(cursor) is Match.COPY


def _is_part(candidate: Candidate, cursor: Cursor) -> bool:
    # shorter than what was read: a copy that was made, or is being made, while its original was still written
    if candidate.damage or candidate.entry.size >= cursor.offset:
        return False
    return candidate.copy_of == cursor.file or has_head(cursor, candidate.head)


def rule(candidate: Candidate, chain: Chain) -> Ruling:
    """Decide on a candidate by what is known of its group."""
    if candidate.entry.is_live:
        return Ruling(Verdict.BEGIN)
    if candidate.entry.packed is not None:
        return rule_compressed(candidate, chain)
    return rule_rotated(candidate, chain)
