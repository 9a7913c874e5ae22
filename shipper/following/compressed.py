"""Decides what a compressed sibling is: the rest of a file we know, a new one, a copy, or one from before our time.

It has an inode of its own, so its content alone tells, as far as that was unpacked. Decides only; the roster acts on it.
"""

from shipper.cursor import Cursor
from shipper.files.identity import HEAD_BYTES, Match, has_head
from shipper.following.chain import (
    Chain,
    Ruling,
    Stranger,
    Verdict,
    came_after,
    is_beginning,
    is_heir_at_0,
)

__all__ = ["rule_compressed"]


def rule_compressed(stranger: Stranger, chain: Chain) -> Ruling:
    """Decide on a compressed sibling that kept no inode that we know.

    Compressing gives every file a new inode, also a short one: that all bytes which were read stand there is enough
    for a file that is gone; of several the one that was read furthest.
    """
    homeless = (*chain.truncated, *chain.gone)
    heirs = [c for c in homeless if is_heir_at_0(stranger, c) or _holds(stranger, c)]
    if heirs:
        return Ruling(Verdict.INHERIT, max(heirs, key=lambda c: (c.offset, c.seen)))
    if copy := _copy(stranger, chain):
        return copy
    likely = [cursor for cursor in homeless if has_head(cursor, stranger.head)]
    if stranger.damage and (likely or (homeless and not stranger.head)):
        return Ruling(Verdict.DAMAGED, max(likely, key=lambda c: c.offset, default=None))
    if not stranger.sighting.size or (stranger.is_partial and likely):
        return Ruling(Verdict.EMPTY)
    return Ruling(Verdict.BEGIN if came_after(stranger.sighting, chain) else Verdict.OLD)


def _copy(stranger: Stranger, chain: Chain) -> Ruling | None:
    if stranger.head and chain.live is not None:
        growing = stranger.is_partial and chain.live.head.startswith(stranger.head)
        if growing or is_beginning(stranger, chain.live):
            return Ruling(Verdict.COPY, chain.followed)
    sure = [
        cursor
        for cursor in chain.cursors
        if cursor.identity.head_length >= HEAD_BYTES or cursor in chain.truncated
    ]
    for cursor in (*chain.unseen, *sure):
        if _holds(stranger, cursor) or _is_part(stranger, cursor):
            return Ruling(Verdict.COPY, cursor)
    return None


def _holds(stranger: Stranger, cursor: Cursor) -> bool:
    return stranger.judged(cursor) is Match.COPY


def _is_part(stranger: Stranger, cursor: Cursor) -> bool:
    # shorter than what was read: a copy that was made, or is being made, while its original was still written
    if stranger.damage or stranger.sighting.size >= cursor.offset:
        return False
    return stranger.copy_of == cursor.file or has_head(cursor, stranger.head)
