"""Recognises a file again, whatever it is called now: inode, first bytes, and the bytes before a position.

Decides on what was read; never opens a file. Two contents that agree in their first 1 KiB and in the 64 bytes before the
position, on the same inode, cannot be told apart.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from hashlib import blake2b

from broker.wire.message import Identity
from broker.wire.positions import Cursor

__all__ = [
    "HEAD_BYTES",
    "TAIL_BYTES",
    "Fingerprint",
    "LastLine",
    "Match",
    "fingerprint",
    "has_head",
    "identify",
    "judge",
]


@dataclass(frozen=True, slots=True)
class LastLine:
    """The offset behind a file's last newline, and the bytes before it."""

    offset: int
    tail: bytes


HEAD_BYTES = 1024
"""How much of a file's beginning is hashed; less while less has been read."""

TAIL_BYTES = 64
"""How many bytes before the offset are hashed."""


class Match(Enum):
    """What a file seen now is to a cursor that we remember."""

    SAME = auto()
    """The inode is the same, and the bytes that were read are there."""
    COPY = auto()
    """Another inode that holds the bytes that were read: what `cp` leaves before a truncation."""
    OTHER = auto()
    """The bytes that were read are not there: another file, or one that was truncated or written anew."""


def fingerprint(data: bytes) -> str:
    """Return the hash of a few bytes, as 16 hex digits."""
    return blake2b(data, digest_size=8).hexdigest()


def identify(inode: int, head: bytes, tail: bytes) -> Identity:
    """Return the identity of a file whose first bytes are `head` and whose bytes before the offset are `tail`."""
    return Identity(inode, len(head), fingerprint(head), len(tail), fingerprint(tail))


def judge(cursor: Cursor, inode: int, size: int, head: bytes, tail: bytes) -> Match:
    """Decide what a file is to a cursor: `head` is its first bytes, `tail` the bytes where the cursor expects its own.

    A cursor at 0 that knows no first bytes recognises its file by the inode alone.
    """
    known = cursor.identity
    same_head = fingerprint(head[: known.head_length]) == known.head_hash
    if size < cursor.offset or not same_head or fingerprint(tail) != known.tail_hash:
        return Match.OTHER
    if inode == known.inode:
        return Match.SAME
    return Match.COPY if known.head_length else Match.OTHER


def has_head(cursor: Cursor, head: bytes) -> bool:
    """Whether a file that begins with `head` begins with what the cursor's file did; never of one nothing is known of."""
    length = cursor.identity.head_length
    return 0 < length <= len(head) and fingerprint(head[:length]) == cursor.identity.head_hash


class Fingerprint:
    """The bytes that recognise one file: the first that were ever seen, and `tail`, those before the position."""

    def __init__(self, cursor: Cursor, head: bytes, tail: bytes) -> None:
        """Begin at the cursor; `head` is what the file begins with now, read before or not."""
        self.beginning = head
        self.tail = tail
        self._position = cursor.offset
        # the bytes before the position are not known where gzip named it as the end
        is_known = len(tail) >= cursor.identity.tail_length
        self._taken_over = None if is_known else cursor.identity

    def identity(self, inode: int) -> Identity:
        """Return what the file is recognised by at the position."""
        if self._taken_over is not None:
            return replace(self._taken_over, inode=inode)
        return identify(inode, self.beginning[: self._position], self.tail)

    def saw(self, head: bytes) -> None:
        """Take note of what the file begins with, of which nothing need have been read."""
        self.beginning = max(self.beginning, head, key=len)

    def skipped(self, length: int) -> None:
        """Take note that the file is read from `length` bytes on, all of them NULs; nothing was read yet."""
        self._position, self.tail = length, bytes(min(length, TAIL_BYTES))

    def took(self, run: bytes) -> None:
        """Take note that these bytes were read, and move behind them."""
        self._taken_over = None
        if self._position < HEAD_BYTES:
            read = (self.beginning[: self._position] + run)[:HEAD_BYTES]
            self.beginning = read + self.beginning[len(read) :]
        self._position += len(run)
        whole = len(run) >= TAIL_BYTES
        self.tail = run[-TAIL_BYTES:] if whole else (self.tail + run)[-TAIL_BYTES:]
