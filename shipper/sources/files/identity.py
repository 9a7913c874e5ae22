"""Recognises a file again, whatever it is called now: inode, first bytes, and the bytes before a position.

Pure rules on what samples show; the catalogue acts on them. Two contents that agree in their first 1 KiB and in the 64 bytes
before the position, on the same inode, cannot be told apart.

A rotation group is a live file with the files that it was rotated to. A file that has the inode of a remembered file of which
bytes are known, and holds them, is that file: all of a group are recognised so before `rule` is asked of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import NamedTuple

from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor
from shipper.sources.files.scan import FileEntry

HEAD_BYTES = 1024
"""How much of a file's beginning is hashed; less while less has been read."""

TAIL_BYTES = 64
"""How many bytes before the offset are hashed."""

MOST_IN_UNIT = 3
"""NULs that a character of UTF-16 or UTF-32 may end in: so many at the end of a file are content."""


def fingerprint(data: bytes | bytearray) -> str:
    """Return the hash of a few bytes, as 16 hex digits."""
    return blake2b(data, digest_size=8).hexdigest()


def identify(inode: int, head: bytes, tail: bytes) -> Identity:
    """Return the identity of a file whose first bytes are `head` and whose bytes before the offset are `tail`."""
    return Identity(inode, len(head), fingerprint(head), len(tail), fingerprint(tail))


class ContentHash:
    """A hash of the first bytes of a file that were read, 1 MiB at most.

    It tells a file that was written anew in place from one that was only written again, or touched. It is not kept in
    the broker: after a restart it is taken of the file as it is then.
    """

    MOST = 1024 * 1024
    __slots__ = ("_hash", "length")

    def __init__(self) -> None:
        self.length = 0
        self._hash = blake2b(digest_size=16)

    def add(self, start: int, data: bytes) -> None:
        """Take in bytes that were read from the position `start` on."""
        known = self.length - start
        if known >= 0 and self.length < self.MOST:
            added = data[known : self.MOST - start]
            self._hash.update(added)
            self.length += len(added)

    def is_of(self, data: bytes) -> bool:
        """Whether these are the bytes that were taken in."""
        return blake2b(data, digest_size=16).digest() == self._hash.digest()


def has_head(cursor: Cursor, head: bytes) -> bool:
    """Whether a file that begins with `head` begins with what the cursor's file did; never of one nothing is known of."""
    length = cursor.identity.head_length
    return 0 < length <= len(head) and fingerprint(head[:length]) == cursor.identity.head_hash


def is_inside_line(tail: bytes) -> bool:
    """Whether a position behind these bytes is inside a line; not behind a hole, or the rest of a newline in UTF-16."""
    written = tail.rstrip(b"\0")
    return bool(written) and not written.endswith(b"\n")


@dataclass(frozen=True, slots=True)
class Sample:
    """The size of a file, its first bytes, and by file id which cursors it holds: True where one is inside a line.

    `end` is a cursor at its end; `is_in_live` says that a rotated file begins like the live file of its group, which holds its
    end, or that it has no end yet. `last` is the offset behind the last newline, with the bytes before it.
    `copy_of` is the id of the file that it was seen to be a copy of before. `written` are the first bytes without NULs that
    may be written over, None where there are none.

    Of a compressed file `size` is at least what it is known to be, `is_partial` says that its end is missing yet, `damage`
    why it cannot be decompressed any further.
    """

    entry: FileEntry
    size: int
    head: bytes
    held: Mapping[str, bool]
    end: Cursor | None = None
    is_in_live: bool = False
    is_partial: bool = False
    damage: str = ""
    last: tuple[int, bytes] = (0, b"")
    copy_of: str | None = None
    written: bytes | None = None

    @property
    def beginning(self) -> bytes:
        """The first bytes that stay as they are."""
        return self.head if self.written is None else self.written

    def has_all(self, cursor: Cursor) -> bool:
        """Whether the file has all bytes that were read of the cursor's file."""
        # more of the beginning of a deleted file may be known by now than when the sample was taken
        if cursor.identity.head_length and not has_head(cursor, self.head):
            return False
        return cursor.file in self.held or bool(cursor.identity.head_length and not cursor.offset)

    def is_copy_of(self, cursor: Cursor) -> bool:
        """Whether the file has another inode and all bytes that were read of the cursor's file."""
        is_elsewhere = cursor.identity.inode != self.entry.key.inode
        return is_elsewhere and cursor.identity.head_length > 0 and self.has_all(cursor)

    def is_part_of(self, cursor: Cursor) -> bool:
        """Whether the file is shorter than what was read of the cursor's file and begins like it.

        So is a copy where lines were written, and read, between the copy and the truncation.
        """
        # sparse files begin alike, with NULs
        begins_so = self.copy_of == cursor.file or (has_head(cursor, self.head) and any(self.head))
        return begins_so and not self.damage and self.size < cursor.offset


class Verdict(Enum):
    """What to do with a file that is not followed yet."""

    BEGIN = auto()  # it is new: a new id, from offset 0
    INHERIT = auto()  # take over the id and the cursor of its original, and so the unread rest
    COPY = auto()  # leave it as long as its lines are read elsewhere
    LEAVE = auto()  # until it changes: with too little in it to tell
    OLD = auto()  # leave it until it changes: older than what was read of its group, or than we are
    DAMAGED = auto()  # it cannot be decompressed as far as it would have to be


class FilePresence(Enum):
    """Where a file of a group is that we know; the last two are followed no longer.

    Its values are how many first bytes must be known of it, to be inherited and to have copies: short files may agree by chance.
    """

    FOLLOWED = None, HEAD_BYTES
    DELETED = None, TAIL_BYTES  # held open without a name
    TRUNCATED = 0, 0  # another file is on its inode
    GONE = TAIL_BYTES, HEAD_BYTES  # its inode is not there


class Known(NamedTuple):
    """A file of a group that we know, and where it is."""

    cursor: Cursor
    presence: FilePresence


def rule(seen: Sample, group: Sequence[Known], *, is_new: bool) -> tuple[Verdict, Cursor | None]:
    """Decide on a file that kept no inode that we know: the first rule that fits.

    `is_new` says that it is not older than what was read of its group. Return with the verdict the cursor to read on from, or
    of the file that it is a copy of; None: of the live file.
    """
    if seen.entry.is_live:
        return Verdict.BEGIN, None
    if not seen.size and not seen.damage:
        return Verdict.LEAVE, None
    if heir_of := [known for known in group if _may_inherit(seen, known)]:
        return Verdict.INHERIT, max(heir_of, key=lambda known: _likeliness(seen, known)).cursor
    if seen.is_in_live:
        return Verdict.COPY, None
    for cursor, presence in group:
        is_like = seen.is_part_of(cursor) or seen.is_copy_of(cursor)
        if is_like and _knows_enough(seen, cursor, presence.value[1]):
            return Verdict.COPY, cursor
    return _rule_unknown(seen, group, is_new), None


def _rule_unknown(seen: Sample, group: Sequence[Known], is_new: bool) -> Verdict:
    left = [known.cursor for known in group if known.presence.value[0] is not None]
    begins_alike = any(has_head(cursor, seen.head) for cursor in left)
    if seen.damage and (begins_alike or (left and not seen.head)):
        return Verdict.DAMAGED
    if seen.entry.is_sought:
        return Verdict.LEAVE
    # a few bytes that can be decompressed do not tell whether it is a copy
    begins_alike |= any(one.cursor.identity.head_length > len(seen.head) for one in group)
    is_in_the_making = not seen.size or (seen.is_partial and begins_alike)
    if is_in_the_making:
        return Verdict.LEAVE
    return Verdict.BEGIN if is_new else Verdict.OLD


def _knows_enough(seen: Sample, cursor: Cursor, least: int) -> bool:
    # what was compressed is seldom like another file by chance
    is_sure = seen.copy_of == cursor.file or (least == TAIL_BYTES and seen.entry.compression)
    return bool(is_sure) or cursor.identity.head_length >= least


def _may_inherit(seen: Sample, known: Known) -> bool:
    cursor, least = known.cursor, known.presence.value[0]
    if least is None:
        return False
    is_unread_original = seen.copy_of == cursor.file and not cursor.offset
    return is_unread_original or (seen.is_copy_of(cursor) and _knows_enough(seen, cursor, least))


def _likeliness(seen: Sample, known: Known) -> tuple[bool, int, int]:
    cursor, is_truncated = known.cursor, known.presence is FilePresence.TRUNCATED
    rank = cursor.offset if seen.entry.compression else is_truncated
    return seen.copy_of == cursor.file, rank, cursor.seen
