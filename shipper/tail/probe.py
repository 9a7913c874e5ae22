"""Probes files that are not followed yet: reads the bytes by which they can be recognised.

Blocks, so it runs in a thread; keeps nothing open.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from shipper.positions import Cursor
from shipper.tail.decompress import Unpacker, told_length
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, LastLine, has_head
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.scan import FileEntry, FileKey

__all__ = ["Ask", "Sample", "close", "last_line", "open_read_only", "sample"]

_STRETCH = 64 * 1024
_FARTHEST = 16 * 1024 * 1024
"""How far back a newline is looked for: a line that long is shipped in pieces, so that its rest may be one of them."""


def last_line(descriptor: int, size: int) -> LastLine:
    """Return where the last whole line of the first `size` bytes ends; raises OSError."""
    offset = _behind_last_newline(descriptor, size)
    start = max(0, offset - TAIL_BYTES)
    return LastLine(offset, os.pread(descriptor, offset - start, start))


def _behind_last_newline(descriptor: int, size: int) -> int:
    end, farthest = size, max(0, size - _FARTHEST)
    while end > farthest:
        start = max(farthest, end - _STRETCH)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return size if farthest else 0


_STEP = 1024 * 1024

_SMALL = 1024 * 1024
"""A compressed file with no more content than this is unpacked to be compared, whatever its headers tell."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A file to glimpse at, the cursors whose offset it may have reached, and the sizes that copies of it have.

    `from_end` asks where its last line ends, too.
    """

    entry: FileEntry
    cursors: tuple[Cursor, ...]
    sizes: tuple[int, ...]
    from_end: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The first bytes of a file, its size then, and the bytes before each cursor's offset and before each size.

    Of a compressed file only cursors that its head fits have tails, and `size` is at least what it is known to be.
    `ended` are the cursors whose offset is the end that its headers tell of: nothing was unpacked for them.
    `is_partial` says that its end is missing yet, `damage` why it cannot be unpacked any further.

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
    """Close a descriptor; raise nothing: a file system that went away may say what it likes, it is closed then, too."""
    with suppress(OSError):
        os.close(descriptor)


def sample(
    asks: Sequence[Ask], is_over: Callable[[], bool] = lambda: False
) -> dict[FileKey, Sample | Notice]:
    """Return what each file looks like; one that is no longer where it was sighted is left out.

    Live files come first: a copy is whole when its original is seen to be truncated. A long way through a compressed
    file is left once `is_over`: then nobody wants the answer, and the program is not to wait for it to end.
    """
    found: dict[FileKey, Sample | Notice] = {}
    lives: dict[str, list[Ask]] = {}
    for ask in sorted(asks, key=_order):
        group = ask.entry.group
        siblings = lives.setdefault(group, [])
        heads = [s.head for a in siblings if isinstance(s := found.get(a.entry.key), Sample)]
        seen = _sample(ask, heads, is_over)
        if seen is None:
            continue
        found[ask.entry.key] = seen
        if ask.entry.is_live:
            siblings.append(ask)
        elif ask.entry.packed is not None and isinstance(seen, Sample) and seen.ends:
            found.update(_compare(siblings, found, tuple(seen.ends)))
    return found


def _order(ask: Ask) -> tuple[bool, bool]:
    return ask.entry.packed is not None, not ask.entry.is_live


def _compare(
    lives: Sequence[Ask], found: Mapping[FileKey, Sample | Notice], sizes: tuple[int, ...]
) -> dict[FileKey, Sample | Notice]:
    compared: dict[FileKey, Sample | Notice] = {}
    for live in lives:
        before = found[live.entry.key]
        again = _sample(replace(live, cursors=(), sizes=sizes), ())
        if isinstance(before, Sample) and isinstance(again, Sample):
            compared[live.entry.key] = replace(before, ends={**before.ends, **again.ends})
    return compared


def _sample(
    ask: Ask, heads: Sequence[bytes], is_over: Callable[[], bool] = lambda: False
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
        if FileKey(status.st_dev, status.st_ino) != ask.entry.key:
            return None
        if ask.entry.packed is not None:
            content = Unpacker(descriptor, ask.entry.packed.packing, is_over)
            return _unpack(descriptor, content, ask, heads)
        head = os.pread(descriptor, HEAD_BYTES, 0)
        tails = {
            cursor.file: _before(descriptor, cursor.offset, cursor.identity.tail_length)
            for cursor in ask.cursors
        }
        ends = {size: _before(descriptor, size, TAIL_BYTES) for size in ask.sizes}
        last = last_line(descriptor, status.st_size) if ask.from_end else None
        nuls = head.startswith(b"\0")
        hole = _hole(descriptor) if nuls else 0
        begin = _begin(descriptor, hole, status.st_blksize) if nuls else 0
        return Sample(status.st_size, head, tails, ends, last=last, hole=hole, begin=begin)
    except OSError as error:
        return Notice(NoticeKind.UNREADABLE, path, f"cannot be read: {error.strerror}")
    finally:
        close(descriptor)


def _hole(descriptor: int) -> int:
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0  # a hole throughout, which may be written to anywhere yet; or the file system knows no holes


def _begin(descriptor: int, hole: int, block: int) -> int:
    data = os.pread(descriptor, block - hole % block, hole)
    return hole + len(data) - len(data.lstrip(b"\0"))


def _before(descriptor: int, offset: int, length: int) -> bytes:
    start = max(0, offset - length)
    return os.pread(descriptor, offset - start, start)


def _unpack(descriptor: int, content: Unpacker, ask: Ask, heads: Sequence[bytes]) -> Sample:
    head = content.read(0, HEAD_BYTES)
    likely = [c for c in ask.cursors if c.identity.head_length and has_head(c, head)]
    is_copy = any(h[: len(head)] == head[: len(h)] for h in heads if h and head)
    length, ended = None, frozenset[str]()
    if likely or is_copy:
        least = max((cursor.offset for cursor in likely), default=len(head))
        length = told_length(descriptor, content.packing, least)
        ended = frozenset(c.file for c in likely if c.offset == length and length > _SMALL)
    tails = {} if ended else _tails(content, likely)
    ends = _ends(content) if is_copy and not ended else {}
    at_end = not ended and content.is_at_end()
    size = content.reached if at_end else max(length or 0, content.reached + 1)
    partial = at_end and not content.is_complete and not content.damage
    return Sample(size, head, tails, ends, ended, partial, content.damage)


def _tails(content: Unpacker, cursors: Sequence[Cursor]) -> dict[str, bytes]:
    starts = {c.file: max(0, c.offset - c.identity.tail_length) for c in cursors}
    # in order, since it can only go forward
    in_order = sorted(cursors, key=lambda cursor: (starts[cursor.file], cursor.offset))
    return {c.file: content.read(starts[c.file], c.offset) for c in in_order}


def _ends(content: Unpacker) -> dict[int, bytes]:
    while not content.is_at_end():
        content.read(max(0, content.reached - TAIL_BYTES), content.reached + _STEP)
    end = content.reached
    if not content.is_complete:
        return {}
    return {end: content.read(max(0, end - TAIL_BYTES), end)}
