"""Decides what a file is that nobody follows yet: one we know, a new one, a copy, or one from before our time.

A rotation chain (family) is a live file with its rotated siblings. Decides only; the roster acts on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from shipper.cursor import Cursor
from shipper.identity import Glimpse, Match, fingerprint, judge
from shipper.sighting import Sighting

__all__ = ["Live", "Ruling", "Stranger", "Verdict", "rule_live", "rule_rotated"]

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
    """A sibling with nothing in it: it may be a copy in the making."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A file that is not followed; `tails` holds, by file id, what stands before the offset of each likely cursor."""

    sighting: Sighting
    head: bytes
    tails: Mapping[str, bytes]

    def judged(self, cursor: Cursor) -> Match:
        """Return what this file is to a cursor."""
        tail = self.tails.get(cursor.file, b"")
        key = self.sighting.key
        return judge(cursor, Glimpse(key.inode, self.sighting.size, self.head, tail))


@dataclass(frozen=True, slots=True)
class Live:
    """The file at a family's live path: its cursor if its inode is known, its first bytes, and whether those are new."""

    cursor: Cursor | None
    head: bytes
    truncated: bool


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, with the cursor to go on from where there is one."""

    verdict: Verdict
    cursor: Cursor | None = None


def rule_live(stranger: Stranger, cursors: Iterable[Cursor]) -> Ruling:
    """Decide on a file at a live path: it is one of the cursors' that kept its inode, or it is new."""
    return _known(stranger, cursors) or Ruling(Verdict.BEGIN)


def rule_rotated(
    stranger: Stranger, cursors: Iterable[Cursor], live: Live | None, newest: int | None
) -> Ruling:
    """Decide on a rotated sibling.

    `newest` is when the family was last read, in nanoseconds; None when we know nothing of it. What was written
    before that and never read was there before us, since whoever rotates renames the file that we read last.
    """
    if known := _known(stranger, cursors):
        return known
    if not stranger.sighting.size:
        return Ruling(Verdict.EMPTY)
    if live is not None and live.cursor is not None:
        copy = _rule_copy(stranger, live, live.cursor)
        if copy is not None:
            return copy
    came_after = newest is not None and stranger.sighting.modified + _CLOCK_SLACK >= newest
    return Ruling(Verdict.BEGIN if stranger.sighting.wanted or came_after else Verdict.OLD)


def _known(stranger: Stranger, cursors: Iterable[Cursor]) -> Ruling | None:
    same = [cursor for cursor in cursors if stranger.judged(cursor) is Match.SAME]
    if not same:
        return None
    return Ruling(Verdict.CONTINUE, max(same, key=lambda cursor: (cursor.offset, cursor.seen)))


def _rule_copy(stranger: Stranger, live: Live, cursor: Cursor) -> Ruling | None:
    match = stranger.judged(cursor)
    if not live.truncated:
        return Ruling(Verdict.COPY) if _looks_like(stranger, live, match, cursor) else None
    if match is Match.COPY:
        return Ruling(Verdict.INHERIT, cursor)
    return Ruling(Verdict.COPY) if _was_read(stranger, cursor) else None


def _looks_like(stranger: Stranger, live: Live, match: Match, cursor: Cursor) -> bool:
    # a copy may still be growing, so a shorter beginning of the live file counts
    common = min(len(stranger.head), len(live.head))
    if not common or stranger.head[:common] != live.head[:common]:
        return False
    whole = stranger.sighting.size >= cursor.offset > 0
    return match is Match.COPY if whole else True


def _was_read(stranger: Stranger, cursor: Cursor) -> bool:
    # lines written between the copy and the truncation, which we read, make the copy shorter than the offset
    length = cursor.identity.head_length
    return (
        0 < length <= len(stranger.head)
        and stranger.sighting.size < cursor.offset
        and fingerprint(stranger.head[:length]) == cursor.identity.head_hash
    )
