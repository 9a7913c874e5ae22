"""Recognises a file by inode, first bytes, and the bytes before a position, whatever its name is.

Two contents on one inode that agree in their first 1 KiB and in the 64 bytes before the position
cannot be distinguished. Pure functions of what was seen and read of a file.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor
from shipper.sources.files.paths import COMPRESSED, Compression, decompressed_name

_NUMBER = re.compile(r".*[^0-9]([0-9]{1,4})", re.ASCII | re.DOTALL)

HEAD_BYTES = 1024
"""How many of a file's first bytes are hashed; fewer if fewer have been read."""

TAIL_BYTES = 64
"""How many bytes before the offset are hashed."""

MOST_IN_UNIT = 3
"""NULs that a character of UTF-16 or UTF-32 may end in: so many at a file's end are content."""


class FileKey(NamedTuple):
    """Device and inode: identifies a file while the file exists or is open, and no longer."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file at a path.

    `group` is the live path that the file belongs to: its own path, or that of the file which it
    was rotated from. `real` is the path behind a symbolic link. `size` is the size on disk.
    `modified` is in nanoseconds since the epoch. `wanted`: a pattern shows the file; other entries
    are rotated siblings of such a file. `is_sought`: no pattern leads here; the file is ignored
    unless it is one that we know.
    """

    path: str
    real: str
    group: str
    key: FileKey
    size: int
    modified: int
    wanted: bool
    compression: Compression | None = None
    is_sought: bool = False

    @property
    def is_live(self) -> bool:
        """Whether its writer still writes to this path."""
        return self.path == self.group

    @property
    def is_unreadable(self) -> bool:
        """Whether it is an archive of a form that cannot be read, or of no file that is known."""
        return self.path.endswith(COMPRESSED) and (self.compression is None or self.is_live)

    @property
    def age(self) -> tuple[int, int, str]:
        """The sort key of rotated files, oldest first: last write, number (higher is older)."""
        number = _NUMBER.fullmatch(decompressed_name(self.path))
        return self.modified, -int(number[1]) if number else 0, self.path

    def differs(self, before: "FileEntry") -> bool:
        """Whether this may be another file or have other bytes.

        A compressed file may be renamed without being another one.
        """
        if self.compression is None:
            return self != before
        return (self.size, self.modified) != (before.size, before.modified)


def fingerprint(data: bytes | bytearray) -> str:
    """Return the hash of a few bytes, as 16 hex digits."""
    return blake2b(data, digest_size=8).hexdigest()


def identify(inode: int, head: bytes, tail: bytes) -> Identity:
    """Return the identity of a file: its first bytes, and the bytes before the offset, hashed."""
    return Identity(inode, len(head), fingerprint(head), len(tail), fingerprint(tail))


class ContentHash:
    """The hash of a file's first bytes that were read, 1 MiB at most.

    It distinguishes a file that was rewritten in place from one that was touched, or written again
    with the same bytes. The broker does not store it: a start takes it from the file as it is then.
    """

    MOST = 1024 * 1024
    __slots__ = ("_hash", "length")

    def __init__(self, length: int = 0, hash_: "blake2b | None" = None) -> None:
        self.length = length
        self._hash = hash_ or blake2b(digest_size=16)

    def add(self, start: int, data: bytes) -> "ContentHash":
        """Return the hash that covers bytes read from the position `start` on, too."""
        known = self.length - start
        if known < 0 or self.length >= self.MOST:
            return self
        added = data[known : self.MOST - start]
        longer = self._hash.copy()
        longer.update(added)
        return ContentHash(self.length + len(added), longer)

    def is_of(self, data: bytes) -> bool:
        """Whether these are the bytes that the hash covers."""
        return blake2b(data, digest_size=16).digest() == self._hash.digest()


def has_head(cursor: Cursor, head: bytes) -> bool:
    """Whether `head` begins like the cursor's file; False if none of its bytes are known."""
    length = cursor.identity.head_length
    return 0 < length <= len(head) and fingerprint(head[:length]) == cursor.identity.head_hash


def is_inside_line(tail: bytes) -> bool:
    """Whether a position behind these bytes is inside a line.

    It is not behind a hole, nor behind the rest of a newline in UTF-16.
    """
    written = tail.rstrip(b"\0")
    return bool(written) and not written.endswith(b"\n")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read of a file to recognise it: its size, its first bytes, and which cursors fit.

    `fits` are the file ids of cursors whose bytes the file has. `end` is a cursor at the file's
    end. `last` is the offset behind the last newline, with the bytes before it. `copy_of` is the id
    of the file that this one was a copy of before.
    `written` are the first bytes without NULs that may be overwritten; None if there are no such.
    `differs_from` are files of its group that begin alike, but do not have its content.
    `made_beside` are deleted files of its content that it was made beside, as a copy is.
    `born`: when it was made, in nanoseconds since the epoch; 0 if unknown.
    `is_in_live`: a rotated file begins like the live file of its group, which has its end, or it
    has no end yet.

    For a compressed file, `size` is the length of the content as far as it is known, `is_partial`:
    its end is missing yet, and `damage` says why the rest cannot be decompressed.
    """

    entry: FileEntry
    size: int
    head: bytes
    fits: Collection[str]
    end: Cursor | None = None
    is_in_live: bool = False
    differs_from: Collection[FileKey] = ()
    made_beside: Collection[FileKey] = ()
    is_partial: bool = False
    damage: str = ""
    last: tuple[int, bytes] = (0, b"")
    copy_of: str | None = None
    written: bytes | None = None
    born: int = 0

    @property
    def beginning(self) -> bytes:
        """The first bytes that stay as they are."""
        return self.head if self.written is None else self.written

    def has_all(self, cursor: Cursor) -> bool:
        """Whether the file has all bytes that were read of the cursor's file."""
        # more of the beginning of a deleted file may be known by now than when the sample was taken
        if cursor.identity.head_length and not has_head(cursor, self.head):
            return False
        return cursor.file in self.fits or bool(cursor.identity.head_length and not cursor.offset)

    def is_copy_of(self, cursor: Cursor) -> bool:
        """Whether the file has another inode and all bytes that were read of the cursor's file."""
        is_elsewhere = cursor.identity.inode != self.entry.key.inode
        return is_elsewhere and cursor.identity.head_length > 0 and self.has_all(cursor)

    def is_part_of(self, cursor: Cursor) -> bool:
        """Whether another file begins like the cursor's, and is shorter than what was read of that.

        A copy is such a part if lines were written, and read, between the copy and the truncation.
        """
        # sparse files begin alike, with NULs
        begins_so = has_head(cursor, self.head) and any(self.head)
        is_like = begins_so and cursor.identity.inode != self.entry.key.inode
        is_shorter = not self.damage and self.size < cursor.offset
        return is_shorter and (is_like or self.copy_of == cursor.file)
