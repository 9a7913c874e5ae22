"""Recognises a file again, whatever it is called now: inode, first bytes, and the bytes before a position.

A sample of a file says which positions it holds. Sampling blocks, so it runs in a thread; it keeps nothing open. Two contents
that agree in their first 1 KiB and in the 64 bytes before the position, on the same inode, cannot be told apart.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from broker.wire.message import Identity
from broker.wire.positions import Cursor
from shipper.tail.decompress import Decompressor, gzip_ends_at
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Packing
from shipper.tail.scan import FileEntry, FileKey

__all__ = [
    "HEAD_BYTES",
    "TAIL_BYTES",
    "Ask",
    "Sample",
    "close",
    "fingerprint",
    "has_head",
    "holds",
    "identify",
    "is_inside_line",
    "open_read_only",
    "sample",
]

HEAD_BYTES = 1024
"""How much of a file's beginning is hashed; less while less has been read."""

TAIL_BYTES = 64
"""How many bytes before the offset are hashed."""

_STEP = 64 * 1024
_FARTHEST = 16 * 1024 * 1024
"""How far back a newline is looked for: a line that long is shipped in pieces, so that its rest may be one of them."""

_SMALL = 1024 * 1024
"""A gzip file with no more content than this is decompressed to be compared, whatever its last bytes say."""


def fingerprint(data: bytes | bytearray) -> str:
    """Return the hash of a few bytes, as 16 hex digits."""
    return blake2b(data, digest_size=8).hexdigest()


def identify(inode: int, head: bytes, tail: bytes) -> Identity:
    """Return the identity of a file whose first bytes are `head` and whose bytes before the offset are `tail`."""
    return Identity(inode, len(head), fingerprint(head), len(tail), fingerprint(tail))


def holds(cursor: Cursor, size: int, head: bytes, tail: bytes) -> bool:
    """Whether a file holds all that was read up to a cursor: `tail` is what the file has before the cursor's offset."""
    known = cursor.identity
    same_head = fingerprint(head[: known.head_length]) == known.head_hash
    return size >= cursor.offset and same_head and fingerprint(tail) == known.tail_hash


def has_head(cursor: Cursor, head: bytes) -> bool:
    """Whether a file that begins with `head` begins with what the cursor's file did; never of one nothing is known of."""
    length = cursor.identity.head_length
    return 0 < length <= len(head) and fingerprint(head[:length]) == cursor.identity.head_hash


def is_inside_line(tail: bytes) -> bool:
    """Whether a position behind these bytes is inside a line; a hole is no line."""
    return not tail.endswith(b"\n") and bool(tail.strip(b"\0"))


@dataclass(frozen=True, slots=True)
class Ask:
    """A file to sample, and the cursors that may be its own; `from_end` asks where its last line ends, too."""

    entry: FileEntry
    cursors: tuple[Cursor, ...]
    from_end: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The first bytes of a file, its size, and by file id which cursors it holds: True where one is inside a line.

    `ends` has, by size, the bytes before that size: of a rotated file before its own, of a live one also before those of
    the rotated files that may be copies of it. `last` is the offset behind the last newline, with the bytes before it.

    Of a compressed file `size` is at least what it is known to be, `is_partial` says that its end is missing yet, `damage`
    why it cannot be decompressed any further. Of a file that begins with a hole, which the file system knows, `begin` is
    where its content begins.
    """

    size: int
    head: bytes
    held: Mapping[str, bool]
    ends: Mapping[int, bytes] = field(default_factory=dict)
    is_partial: bool = False
    damage: str = ""
    last: tuple[int, bytes] = (0, b"")
    begin: int = 0


def open_read_only(path: str) -> int:
    """Open without waiting for a writer, should the path have become a pipe; raise OSError as `os.open` does."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def close(descriptor: int) -> None:
    """Close a descriptor; raise nothing: whatever a file system that went away says, it is closed then, too."""
    with suppress(OSError):
        os.close(descriptor)


def sample(
    asks: Sequence[Ask], is_over: Callable[[], bool] = lambda: False
) -> dict[FileKey, Sample | Notice]:
    """Return what each file looks like; one that is no longer where the scan saw it is left out.

    Live files come first: a copy is whole when its original is seen to be truncated. Decompressing is given up once
    `is_over`: then nobody wants the answer, and the program is not to wait for it to end.
    """
    found: dict[FileKey, Sample | Notice] = {}
    lives = {ask.entry.group: ask.entry for ask in asks if ask.entry.is_live}
    for ask in sorted(asks, key=_order):
        live = lives.get(ask.entry.group)
        before = None if live is None or live is ask.entry else found.get(live.key)
        head = before.head if isinstance(before, Sample) else b""
        seen = _probe(ask, live_head=head, is_over=is_over)
        if live and isinstance(before, Sample) and isinstance(seen, Sample):
            again = _compare(live, before, seen)
            if again is None:
                continue  # whether this is a copy of the live file, which changed meanwhile, is not known
            found[live.key] = again
        if seen is not None:
            found[ask.entry.key] = seen
    return found


def _order(ask: Ask) -> tuple[bool, bool]:
    return not ask.entry.is_live, ask.entry.packed is not None


def _compare(live: FileEntry, before: Sample, rotated: Sample) -> Sample | None:
    """Return the live file's sample with the bytes before the rotated file's size; None if it is not as it was."""
    if not rotated.ends or not before.head.startswith(rotated.head):
        return before
    again = _probe(Ask(live, ()), sizes=rotated.ends)
    if not isinstance(again, Sample) or again.size < before.size:
        return None
    ends = {**before.ends, **again.ends}
    return replace(before, ends=ends) if again.head.startswith(before.head) else None


def _probe(
    ask: Ask,
    *,
    sizes: Collection[int] = (),
    live_head: bytes = b"",
    is_over: Callable[[], bool] = lambda: False,
) -> Sample | Notice | None:
    path = ask.entry.path
    try:
        descriptor = open_read_only(path)
    except PermissionError:
        return Notice(NoticeKind.UNREADABLE, path, "may not be read: check its owner and mode")
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if FileKey.of(status) != ask.entry.key:
            return None
        if ask.entry.packed is None:
            return _plain(descriptor, status, ask, sizes)
        content = Decompressor(descriptor, ask.entry.packed.packing, is_over)
        return _compressed(descriptor, content, ask, live_head)
    except OSError as error:
        return Notice(NoticeKind.UNREADABLE, path, f"cannot be read: {error.strerror}")
    finally:
        close(descriptor)


def _plain(descriptor: int, status: os.stat_result, ask: Ask, sizes: Collection[int]) -> Sample:
    tails = {c.file: _before(descriptor, c.offset, c.identity.tail_length) for c in ask.cursors}
    ends = {n: _before(descriptor, n, TAIL_BYTES) for n in {status.st_size, *sizes}}
    last = _last_line(descriptor, status.st_size) if ask.from_end else (0, b"")
    # head and size come last: a truncation before that shows in them
    head = os.pread(descriptor, HEAD_BYTES, 0)
    begin = _behind_hole(descriptor, status.st_blksize) if head.startswith(b"\0") else 0
    size, inode = os.fstat(descriptor).st_size, status.st_ino
    # what was read of another content stood before the first byte of this one; and all holes look alike
    likely = [c for c in ask.cursors if c.offset >= begin or _is_unread(c, inode)]
    return Sample(size, head, _held(likely, size, head, tails), ends, last=last, begin=begin)


def _is_unread(cursor: Cursor, inode: int) -> bool:
    return not cursor.offset and cursor.identity.inode == inode


def _held(
    cursors: Iterable[Cursor], size: int, head: bytes, tails: Mapping[str, bytes]
) -> dict[str, bool]:
    # a compressed file has tails of those cursors only that its head fits
    pairs = ((cursor, tails.get(cursor.file, b"")) for cursor in cursors)
    return {c.file: is_inside_line(tail) for c, tail in pairs if holds(c, size, head, tail)}


def _before(descriptor: int, position: int, length: int) -> bytes:
    start = max(0, position - length)
    return os.pread(descriptor, position - start, start)


def _last_line(descriptor: int, size: int) -> tuple[int, bytes]:
    farthest = max(0, size - _FARTHEST)
    start, position = size, size if farthest else 0
    while start > farthest:
        end, start = start, max(farthest, start - _STEP)
        if behind := os.pread(descriptor, end - start, start).rfind(b"\n") + 1:
            position = start + behind
            break
    return position, _before(descriptor, position, TAIL_BYTES)


def _behind_hole(descriptor: int, block: int) -> int:
    """Return where the content behind a hole begins, which is no NUL unless all of its first block are; 0 without a hole."""
    try:
        hole = os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0  # a hole throughout, which may be written to anywhere yet; or the file system knows no holes
    data = os.pread(descriptor, block - hole % block, hole) if hole else b""
    return hole + len(data) - len(data.lstrip(b"\0"))


def _compressed(descriptor: int, content: Decompressor, ask: Ask, live_head: bytes) -> Sample:
    head = content.read(0, HEAD_BYTES)
    likely = [c for c in ask.cursors if has_head(c, head)]
    is_gzip = ask.entry.packed is not None and ask.entry.packed.packing is Packing.GZIP
    large = [c for c in likely if is_gzip and c.offset > _SMALL]
    if ended := [c for c in large if gzip_ends_at(descriptor, c.offset)]:
        return Sample(ended[0].offset, head, {cursor.file: False for cursor in ended})
    starts = {c.file: max(0, c.offset - c.identity.tail_length) for c in likely}
    # in order, since it can only go forward
    likely.sort(key=lambda cursor: (starts[cursor.file], cursor.offset))
    tails = {c.file: content.read(starts[c.file], c.offset) for c in likely}
    ends = _end(content) if head and live_head.startswith(head) else {}
    at_end = content.is_at_end()
    size = content.reached if at_end else content.reached + 1
    partial = at_end and not content.is_complete and not content.damage
    held = _held(ask.cursors, size, head, tails)
    return Sample(size, head, held, ends, is_partial=partial, damage=content.damage)


def _end(content: Decompressor) -> dict[int, bytes]:
    while not content.is_at_end():
        content.read(max(0, content.reached - TAIL_BYTES), content.reached + _STEP)
    end = content.reached
    return {end: content.read(max(0, end - TAIL_BYTES), end)} if content.is_complete else {}
