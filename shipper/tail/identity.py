"""Recognises a file again, whatever it is called now: inode, first bytes, and the bytes before a position.

A sample of a file says which positions it holds. Sampling blocks, so it runs in a thread; it keeps nothing open. Two contents
that agree in their first 1 KiB and in the 64 bytes before the position, on the same inode, cannot be told apart.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b

from broker.wire.message import Identity
from broker.wire.positions import Cursor
from shipper.tail.decompress import Decompressor
from shipper.tail.notices import Notice, NoticeKind
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
    """Whether a position behind these bytes is inside a line."""
    return bool(tail) and not tail.endswith(b"\n")


@dataclass(frozen=True, slots=True)
class Ask:
    """A file to sample, and the cursors that may be its own; `from_end` asks where its last line ends, too."""

    entry: FileEntry
    cursors: tuple[Cursor, ...]
    from_end: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The first bytes of a file, its size, and by file id which cursors it holds: True where one is inside a line.

    `is_in_live` says that a rotated file begins like the live file of its group, and ends like a part of it or has no end
    yet. `last` is the offset behind the last newline, with the bytes before it. `end` is a size, and the bytes before it.

    Of a compressed file `size` is at least what it is known to be, `is_partial` says that its end is missing yet, `damage`
    why it cannot be decompressed any further.
    """

    size: int
    head: bytes
    held: Mapping[str, bool]
    is_in_live: bool = False
    is_partial: bool = False
    damage: str = ""
    last: tuple[int, bytes] = (0, b"")
    end: tuple[int, bytes] | None = None


def open_read_only(path: str) -> int:
    """Open without waiting for a writer, should the path have become a pipe; raise OSError as `os.open` does."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def close(descriptor: int) -> None:
    """Close a descriptor; raise nothing: whatever a file system that went away says, it is closed then, too."""
    with suppress(OSError):
        os.close(descriptor)


def sample(asks: Sequence[Ask]) -> dict[FileKey, Sample | Notice]:
    """Return what each file looks like; one that is no longer where the scan saw it is left out.

    So is a rotated file whose live file changed meanwhile: whether it is a copy is not known. Live files come first: a
    copy is whole when its original is seen to be truncated.
    """
    found: dict[FileKey, Sample | Notice] = {}
    lives = {ask.entry.group: ask.entry for ask in asks if ask.entry.is_live}
    for ask in sorted(asks, key=lambda ask: (not ask.entry.is_live, ask.entry.packing is not None)):
        live = lives.get(ask.entry.group, ask.entry)
        before = found.get(live.key) if live is not ask.entry else None
        seen = _probe(ask, before.head if isinstance(before, Sample) else b"")
        if isinstance(before, Sample) and isinstance(seen, Sample):
            seen = _compared(live, before, seen)
        if seen is not None:
            found[ask.entry.key] = seen
    return found


def _compared(live: FileEntry, before: Sample, rotated: Sample) -> Sample | None:
    """Return the sample of a rotated file, compared with its live file; None if that is not as it was."""
    if not (rotated.head and before.head.startswith(rotated.head)):
        return rotated
    if rotated.end is None:
        return replace(rotated, is_in_live=rotated.is_partial)
    size, tail = rotated.end
    again = _probe(Ask(live, ()), size=size)
    if not isinstance(again, Sample) or again.end is None or again.size < before.size:
        return None
    if not again.head.startswith(before.head):
        return None
    return replace(rotated, is_in_live=again.end[1] == tail)


def _probe(ask: Ask, live_head: bytes = b"", size: int | None = None) -> Sample | Notice | None:
    path, packing = ask.entry.path, ask.entry.packing
    try:
        descriptor = open_read_only(path)
    except PermissionError:
        return Notice(NoticeKind.UNREADABLE, path, "may not be read: check its owner and mode")
    except OSError:
        return None
    try:
        if FileKey.of(os.fstat(descriptor)) != ask.entry.key:
            return None
        if packing is None:
            return _plain(descriptor, ask, size)
        return _compressed(Decompressor(descriptor, packing), ask, live_head)
    except OSError as error:
        return Notice(NoticeKind.UNREADABLE, path, f"cannot be read: {error.strerror}")
    finally:
        close(descriptor)


def _plain(descriptor: int, ask: Ask, size: int | None) -> Sample:
    end = os.fstat(descriptor).st_size
    tails = {c.file: _before(descriptor, c.offset, c.identity.tail_length) for c in ask.cursors}
    position = end if size is None else size
    before = _before(descriptor, position, TAIL_BYTES)
    last = _last_line(descriptor, end) if ask.from_end else (0, b"")
    # head and size come last: a truncation before that shows in them
    head = os.pread(descriptor, HEAD_BYTES, 0)
    now = os.fstat(descriptor).st_size
    return Sample(now, head, _held(ask, now, head, tails), last=last, end=(position, before))


def _held(ask: Ask, size: int, head: bytes, tails: Mapping[str, bytes]) -> dict[str, bool]:
    # a compressed file has tails of those cursors only that its head fits
    pairs = ((cursor, tails.get(cursor.file, b"")) for cursor in ask.cursors)
    return {c.file: is_inside_line(tail) for c, tail in pairs if holds(c, size, head, tail)}


def _before(descriptor: int, position: int, length: int) -> bytes:
    start = max(0, position - length)
    return os.pread(descriptor, position - start, start)


def _last_line(descriptor: int, size: int) -> tuple[int, bytes]:
    position = size if size > _FARTHEST else 0
    for length in (_STEP, _FARTHEST):
        start = max(0, size - length)
        if behind := os.pread(descriptor, size - start, start).rfind(b"\n") + 1:
            position = start + behind
            break
    return position, _before(descriptor, position, TAIL_BYTES)


def _compressed(content: Decompressor, ask: Ask, live_head: bytes) -> Sample:
    head = content.read(0, HEAD_BYTES)
    likely = [c for c in ask.cursors if has_head(c, head)]
    starts = {c.file: max(0, c.offset - c.identity.tail_length) for c in likely}
    # in order, since it can only go forward
    likely.sort(key=lambda cursor: (starts[cursor.file], cursor.offset))
    tails = {c.file: content.read(starts[c.file], c.offset) for c in likely}
    end = _end(content) if head and live_head.startswith(head) else None
    at_end = content.is_at_end()
    size = content.reached if at_end else content.reached + 1
    partial = at_end and not content.is_complete and not content.damage
    held = _held(ask, size, head, tails)
    return Sample(size, head, held, is_partial=partial, damage=content.damage, end=end)


def _end(content: Decompressor) -> tuple[int, bytes] | None:
    while not content.is_at_end():
        content.read(max(0, content.reached - TAIL_BYTES), content.reached + _STEP)
    end = content.reached
    return (end, content.read(max(0, end - TAIL_BYTES), end)) if content.is_complete else None
