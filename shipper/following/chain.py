"""Decides what a file is that nobody follows yet: one we know, a new one, a copy, or one from before our time.

A rotation chain (family) is a live file with its rotated siblings. Decides only; the roster acts on it.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum, auto

from shipper.cursor import Cursor
from shipper.files.identity import HEAD_BYTES, TAIL_BYTES, Glimpse, Match, has_head, judge
from shipper.files.lastline import LastLine
from shipper.files.rotation import age
from shipper.files.sighting import Sighting

__all__ = [
    "Chain",
    "Ruling",
    "Stranger",
    "Verdict",
    "came_after",
    "is_beginning",
    "is_heir_at_0",
    "namesakes",
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
    """Rotated before we came to know its family: leave it."""
    EMPTY = auto()
    """A sibling with nothing in it, or too little: it may be a copy in the making."""
    DAMAGED = auto()
    """A compressed sibling that cannot be unpacked as far as it would have to be."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A file to decide on; `tails` holds, by file id, what stands before the offset of each likely cursor.

    `ends` holds, by size, what stands before the size that a copy has; `copy_of` is the file that it
    was a beginning of when both were seen. `last` is where it is to begin, should it be
    new, if not at 0. The rest is what `Sample` tells of compressed files and of holes.
    """

    sighting: Sighting
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
        """What the strangers of a family are judged by in turn: the live one first, then the oldest."""
        sighting = self.sighting
        return not sighting.is_live, age(sighting.modified, sighting.path)

    def judged(self, cursor: Cursor) -> Match:
        """Return what this file is to a cursor."""
        key = self.sighting.key
        if cursor.file in self.ended:
            return Match.SAME if key.inode == cursor.identity.inode else Match.COPY
        is_there = key.inode == cursor.identity.inode
        if self.hole and cursor.offset < self.begin and (cursor.offset or not is_there):
            # whatever was read of it stood before its first byte; and all holes look alike
            return Match.TRUNCATED if is_there else Match.OTHER
        tail = self.tails.get(cursor.file, b"")
        return judge(cursor, Glimpse(key.inode, self.sighting.size, self.head, tail))


@dataclass(frozen=True, slots=True)
class Chain:
    """What is known of a stranger's family.

    `live` is the file at the live path, if it still holds what was read of it, `followed` the cursor that it is
    followed by. `truncated` are the cursors whose inode
    is there and holds other bytes, `gone` those whose inode is not there, `unseen` those of
    open files that have no name any more, `cursors` all. `oldest` is the age of the oldest rotated file that is followed,
    `newest` when the family was last read, or last looked at if that is earlier, in nanoseconds; None when there is none.
    """

    live: Stranger | None
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


def rule_known(stranger: Stranger, cursors: Iterable[Cursor]) -> Ruling | None:
    """Return how to go on with a file that is one of the cursors' and kept its inode; None when it is not.

    All files of a family must have been asked this before `rule_rotated` is asked of any.
    """
    same = [cursor for cursor in cursors if stranger.judged(cursor) is Match.SAME]
    if not same:
        return None
    return Ruling(Verdict.CONTINUE, max(same, key=lambda cursor: (cursor.offset, cursor.seen)))


def namesakes(stranger: Stranger, known: Ruling, cursors: Iterable[Cursor]) -> list[Cursor]:
    """Return the other cursors of a known file that kept its inode: by which it was found, and nothing was read."""
    path = known.cursor.path if known.cursor else ""
    same = (c for c in cursors if c.path == path and stranger.judged(c) is Match.SAME)
    return [cursor for cursor in same if cursor.offset == 0 and cursor != known.cursor]


def rule_rotated(stranger: Stranger, chain: Chain) -> Ruling:
    """Decide on a rotated sibling that kept no inode that we know.

    One that was never read is new when it is younger than a file that we know, since those that were there before
    us are older than all of them; when none is left to compare with, when it was written after we last read.
    """
    if not stranger.sighting.size:
        return Ruling(Verdict.EMPTY)
    for cursor in (*chain.truncated, *chain.gone):
        if _is_heir(stranger, cursor, chain):
            return Ruling(Verdict.INHERIT, cursor)
    if _is_copy(stranger, chain):
        return Ruling(Verdict.COPY)
    new = stranger.sighting.wanted or came_after(stranger.sighting, chain)
    return Ruling(Verdict.BEGIN if new else Verdict.OLD)


def _is_copy(stranger: Stranger, chain: Chain) -> bool:
    return (
        (chain.live is not None and is_beginning(stranger, chain.live))
        or any(_was_read(stranger, cursor) for cursor in chain.truncated)
        or any(_is_left_copy(stranger, cursor, chain) for cursor in chain.cursors)
    )


def came_after(sighting: Sighting, chain: Chain) -> bool:
    """Whether a sibling that was never read is younger than what is known of its family."""
    if chain.oldest is not None and age(sighting.modified, sighting.path) > chain.oldest:
        return True
    return chain.newest is not None and sighting.modified + _CLOCK_SLACK >= chain.newest


def is_heir_at_0(stranger: Stranger, cursor: Cursor) -> bool:
    """Whether a sibling was seen as the copy of a file of which nothing was read."""
    return stranger.copy_of == cursor.file and cursor.offset == 0


def _is_heir(stranger: Stranger, cursor: Cursor, chain: Chain) -> bool:
    if is_heir_at_0(stranger, cursor):
        return True
    # a few bytes in common with a file that is gone may be chance
    likely = stranger.copy_of == cursor.file or cursor.identity.head_length >= TAIL_BYTES
    return (likely or cursor in chain.truncated) and stranger.judged(cursor) is Match.COPY


def is_beginning(stranger: Stranger, live: Stranger) -> bool:
    """Whether a sibling may be a copy of the live file: it begins like that, and ends as that goes on."""
    # a copy may still be growing, and the live file may have grown since
    head = live.head[: len(stranger.head)]
    # holes that two files begin with are alike, and say nothing of what stands behind them
    hole = min(stranger.begin, stranger.sighting.size - 1)
    both = stranger.ends.keys() & live.ends.keys()
    sizes = [size for size in both if not 0 < size <= hole]
    return head == stranger.head and any(stranger.ends[n] == live.ends[n] for n in sizes)


def _was_read(stranger: Stranger, cursor: Cursor) -> bool:
    # lines written between the copy and the truncation, which we read, make the copy shorter than the offset
    if stranger.sighting.size >= cursor.offset:
        return False
    return stranger.copy_of == cursor.file or has_head(cursor, stranger.head)


def _is_left_copy(stranger: Stranger, cursor: Cursor, chain: Chain) -> bool:
    # one that stayed when its original was renamed, or that a person made; one that we did not see beside its
    # original is judged only by a whole kilobyte, since less may be a common heading
    enough = TAIL_BYTES if cursor in chain.unseen else HEAD_BYTES
    if stranger.copy_of != cursor.file and cursor.identity.head_length < enough:
        return False
    return _was_read(stranger, cursor) or stranger.judged(cursor) is Match.COPY
