"""Recognises a file again, whatever it is called now: inode, first bytes, and the bytes before an offset.

Judges what was seen; never opens a file. Two contents that agree in their first 1 KiB and in the 64 bytes before the
offset, on the same inode, cannot be told apart.
"""

from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b

from broker.wire.message import Identity
from shipper.cursor import Cursor

__all__ = [
    "HEAD_BYTES",
    "TAIL_BYTES",
    "Glimpse",
    "Match",
    "fingerprint",
    "has_head",
    "identify",
    "judge",
]

HEAD_BYTES = 1024
"""How much of a file's beginning is hashed; less while less has been read."""

TAIL_BYTES = 64
"""How much is hashed of what stands before the offset."""


_NOTHING = blake2b(b"", digest_size=8).hexdigest()  # one string for the thousands that need it


class Match(Enum):
    """What a file seen now is to a cursor that we remember."""

    SAME = auto()
    TRUNCATED = auto()
    """The inode is the same, the bytes that were read are gone: begin at 0 under a new id."""
    REUSED = auto()
    """The inode is the same, the file begins with other bytes: another file, or one written anew."""
    COPY = auto()
    """Another inode that holds the bytes we have read: what `cp` leaves before a truncation."""
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What was seen of a file: its size, its first bytes, and the bytes where a cursor expects its own tail."""

    inode: int
    size: int
    head: bytes
    tail: bytes


def fingerprint(data: bytes) -> str:
    """Return the hash of a few bytes, as 16 hex digits."""
    return blake2b(data, digest_size=8).hexdigest() if data else _NOTHING


def identify(inode: int, head: bytes, tail: bytes) -> Identity:
    """Return the identity of a file whose first bytes are `head` and whose bytes before the offset are `tail`."""
    return Identity(inode, len(head), fingerprint(head), len(tail), fingerprint(tail))


def judge(cursor: Cursor, seen: Glimpse) -> Match:
    """Decide what the file seen is to the cursor.

    An offset of 0 has nothing to compare but the inode, unless the cursor remembers what the file began with.
    """
    if seen.inode == cursor.identity.inode:
        return _judge_same_inode(cursor, seen)
    if cursor.identity.head_length == 0 or seen.size < cursor.offset:
        return Match.OTHER
    return Match.COPY if _same_head(cursor, seen) and _same_tail(cursor, seen) else Match.OTHER


def has_head(cursor: Cursor, head: bytes) -> bool:
    """Whether a file that begins with `head` begins with what the cursor's file did; never of one nothing is known of."""
    length = cursor.identity.head_length
    return 0 < length <= len(head) and fingerprint(head[:length]) == cursor.identity.head_hash


def _judge_same_inode(cursor: Cursor, seen: Glimpse) -> Match:
    if seen.size < cursor.offset:
        return Match.TRUNCATED
    if not _same_head(cursor, seen):
        return Match.REUSED
    return Match.SAME if _same_tail(cursor, seen) else Match.TRUNCATED


def _same_head(cursor: Cursor, seen: Glimpse) -> bool:
    return fingerprint(seen.head[: cursor.identity.head_length]) == cursor.identity.head_hash


def _same_tail(cursor: Cursor, seen: Glimpse) -> bool:
    return fingerprint(seen.tail) == cursor.identity.tail_hash
