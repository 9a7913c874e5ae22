"""Gathers what is known of a family once its files that kept their inode are told: what the others are judged by."""

from collections.abc import Container, Iterable

from shipper.cursor import Cursor
from shipper.following.chain import Chain, Stranger
from shipper.following.index import Index
from shipper.following.outlook import Outlook

__all__ = ["kin"]


def kin(
    family: str, live: Stranger | None, shown: Outlook, index: Index, known: Container[str]
) -> Chain:
    """Return the chain of a family; `live` is the file at its live path, `known` are the ids without a file."""
    cursors = tuple(index.cursors[family])
    inodes = shown.inodes.get(family, ())
    homeless = sorted((c for c in cursors if c.file in known), key=lambda c: c.seen, reverse=True)
    unseen = (t for t in index.tailers[family] if t.sighting.key not in shown.files)
    followed = (t.cursor for t in index.tailers[family] if t.sighting.is_live)
    return Chain(
        live=live,
        truncated=tuple(c for c in homeless if c.identity.inode in inodes),
        gone=tuple(c for c in homeless if c.identity.inode not in inodes),
        unseen=tuple(t.start if t.is_unread else t.cursor for t in unseen),
        cursors=cursors,
        oldest=index.oldest(family),
        newest=_newest(cursors, shown.before),
        followed=next(followed, None),
    )


def _newest(cursors: Iterable[Cursor], looked: int | None) -> int | None:
    # a backlog may be read long after its successor was written and rotated, but not before we looked last
    times = [] if looked is None else [looked]
    # nor before a file was found; that counts only when none was read, since a copy of its lines may be older
    read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
    times += [max(read)] if read else []
    return min(times, default=None)
