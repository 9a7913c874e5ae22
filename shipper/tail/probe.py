"""Probes files that are not followed yet: reads the bytes by which they can be recognised.

Blocks, so it runs in a thread; keeps nothing open.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from broker.wire.positions import Cursor
from shipper.tail.decompress import Decompressor, gzip_ends_at
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, LastLine, has_head
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Packing
from shipper.tail.scan import FileEntry, FileKey

__all__ = ["Ask", "Sample", "bytes_around", "close", "open_read_only", "sample"]

_STEP = 64 * 1024
_FARTHEST = 16 * 1024 * 1024
"""How far back a newline is looked for: a line that long is shipped in pieces, so that its rest may be one of them."""

_SMALL = 1024 * 1024
"""A compressed file with no more content than this is decompressed to be compared, whatever its last bytes say."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A file to probe, and the cursors that may be its own; `from_end` asks where its last line ends, too."""

    entry: FileEntry
    cursors: tuple[Cursor, ...]
    from_end: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The first bytes of a file, its size, and by file id the bytes before the position of each cursor.

    `ends` holds, by size, the bytes before that size: of a rotated file before its own, of a live one also before
    those of the rotated files that may be copies of it.

    Of a compressed file only cursors that its head fits have tails, and `size` is at least what it is known to be.
    `ended` are the cursors at the end that the file itself names: nothing was decompressed for them. `is_partial` says
    that its end is missing yet, `damage` why it cannot be decompressed any further.

    Of a file that begins with NULs `hole` is the first byte that the file system has data for, and `begin` the first
    other byte in that block, or the block's end.
    """

    size: int
    head: bytes
    tails: Mapping[str, bytes]
    ends: Mapping[int, bytes]
    ended: frozenset[str] = frozenset()
    is_partial: bool = False
    damage: str = ""
    last: LastLine | None = None
    hole: int = 0
    begin: int = 0


def open_read_only(path: str, flags: int = os.O_RDONLY) -> int:
    """Open without waiting for a writer, should the path have become a pipe; raise OSError as `os.open` does."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def close(descriptor: int) -> None:
    """Close a descriptor; raise nothing: whatever a file system that went away says, it is closed then, too."""
    with suppress(OSError):
        os.close(descriptor)


def bytes_around(
    descriptor: int, packing: Packing | None, cursor: Cursor, is_over: Callable[[], bool]
) -> tuple[int, bytes, bytes]:
    """Return the size of an open file, its first bytes, and those before a cursor; none where they cannot be read."""
    try:
        if packing is None:
            size, head = os.fstat(descriptor).st_size, os.pread(descriptor, HEAD_BYTES, 0)
            return size, head, _before(descriptor, cursor.offset, cursor.identity.tail_length)
        content = Decompressor(descriptor, packing, is_over)
        head = content.read(0, HEAD_BYTES)
        tail = _tails(content, [cursor])[cursor.file]
    except OSError:
        return 0, b"", b""
    return content.reached, head, tail


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
    last = _last_line(descriptor, status.st_size) if ask.from_end else None
    # head and size come last: a truncation before that shows in them
    head = os.pread(descriptor, HEAD_BYTES, 0)
    hole, begin = _hole(descriptor, status.st_blksize) if head.startswith(b"\0") else (0, 0)
    size = os.fstat(descriptor).st_size
    return Sample(size, head, tails, ends, last=last, hole=hole, begin=begin)


def _before(descriptor: int, position: int, length: int) -> bytes:
    start = max(0, position - length)
    return os.pread(descriptor, position - start, start)


def _last_line(descriptor: int, size: int) -> LastLine:
    farthest = max(0, size - _FARTHEST)
    start, position = size, size if farthest else 0
    while start > farthest:
        end, start = start, max(farthest, start - _STEP)
        if behind := os.pread(descriptor, end - start, start).rfind(b"\n") + 1:
            position = start + behind
            break
    return LastLine(position, _before(descriptor, position, TAIL_BYTES))


def _hole(descriptor: int, block: int) -> tuple[int, int]:
    try:
        hole = os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        hole = 0  # a hole throughout, which may be written to anywhere yet; or the file system knows no holes
    data = os.pread(descriptor, block - hole % block, hole)
    return hole, hole + len(data) - len(data.lstrip(b"\0"))


def _compressed(descriptor: int, content: Decompressor, ask: Ask, live_head: bytes) -> Sample:
    head = content.read(0, HEAD_BYTES)
    likely = [cursor for cursor in ask.cursors if has_head(cursor, head)]
    is_gzip = ask.entry.packed is not None and ask.entry.packed.packing is Packing.GZIP
    large = [cursor for cursor in likely if is_gzip and cursor.offset > _SMALL]
    if ended := [cursor for cursor in large if gzip_ends_at(descriptor, cursor.offset)]:
        return Sample(ended[0].offset, head, {}, {}, frozenset(c.file for c in ended))
    tails = _tails(content, likely)
    ends = _end(content) if head and live_head.startswith(head) else {}
    at_end = content.is_at_end()
    size = content.reached if at_end else content.reached + 1
    partial = at_end and not content.is_complete and not content.damage
    return Sample(size, head, tails, ends, is_partial=partial, damage=content.damage)


def _tails(content: Decompressor, cursors: Sequence[Cursor]) -> dict[str, bytes]:
    starts = {c.file: max(0, c.offset - c.identity.tail_length) for c in cursors}
    # in order, since it can only go forward
    in_order = sorted(cursors, key=lambda cursor: (starts[cursor.file], cursor.offset))
    return {c.file: content.read(starts[c.file], c.offset) for c in in_order}


def _end(content: Decompressor) -> dict[int, bytes]:
    while not content.is_at_end():
        content.read(max(0, content.reached - TAIL_BYTES), content.reached + _STEP)
    end = content.reached
    return {end: content.read(max(0, end - TAIL_BYTES), end)} if content.is_complete else {}
