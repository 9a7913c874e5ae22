"""Samples files: the first bytes of each, and which cursors fit it.

Blocks, so it runs in a thread; keeps nothing open.
"""

import ctypes
import errno
import os
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from nats_logship.wire.positions import Cursor
from shipper.sources.files.decompress import Decompressor
from shipper.sources.files.holes import written_head
from shipper.sources.files.identity import (
    HEAD_BYTES,
    TAIL_BYTES,
    FileEntry,
    FileKey,
    Sample,
    fingerprint,
    has_head,
    identify,
)

PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOENT}
"""Why a file cannot be opened that the next scan may open: it was moved, or too many are open."""

_STEP = 64 * 1024
_MOST_COMPARED = 64 * 1024 * 1024  # bytes of a file and its copy
_MOST_GROWN = 64 * 1024 * 1024
"""Bytes by which a live file may grow while a scan reads its archive.

An archive that is longer by more is no copy of it, and is not decompressed any further.
"""
_FARTHEST = 256 * 1024 * 1024
"""Bytes in which a newline is searched with `--from end`: also space allocated beforehand.

Without a newline in them a file is read from 0.
"""

_AT_EMPTY_PATH = 0x1000
_BORN = 0x800  # the time at which a file was made, as a bit of the mask of statx(2)
_STATUS = struct.Struct("I76xqI164x")  # mask and that time in `struct statx`
_libc = ctypes.CDLL(None)


class Original(NamedTuple):
    """A file that others may be copies of: its descriptor, or -1, and its first bytes, if known."""

    descriptor: int = -1
    beginning: bytes = b""


def open_file(entry: FileEntry) -> int:
    """Open a file; return -1 if another one is at its path by now.

    Does not wait for a pipe. Raises OSError.
    """
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) == entry.key:
        return descriptor
    close(descriptor)
    return -1


def close(descriptor: int) -> None:
    """Close a descriptor, and ignore errors: it is closed even if its file system is gone."""
    with suppress(OSError):
        os.close(descriptor)


def size_at(cursor: Cursor) -> int | None:
    """Return the size of a file on disk; None if it left its path or may not be seen."""
    with suppress(OSError):
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        return found.st_size if found.st_ino == cursor.identity.inode else None
    return None


def find_there(cursors: Iterable[Cursor]) -> set[str]:
    """Return the ids of files that are at their paths or, rotated, elsewhere in their folders.

    Also of those that cannot be seen now. An inode is that of the file that was read last.
    """
    found, listed = set[str](), dict[str, Collection[int] | None]()
    rotated: dict[tuple[str, int], str] = {}
    for one in sorted(cursors, key=lambda cursor: cursor.seen):
        folder, inode = os.path.dirname(one.path), one.identity.inode  # noqa: PTH120
        try:
            is_there = os.stat(one.path).st_ino == inode  # noqa: PTH116 - a path of any bytes
        except FileNotFoundError:
            is_there = False
        except OSError:  # its folder is closed to us, or its file system is away
            is_there = True
        if not is_there and folder not in listed:
            listed[folder] = _list_inodes(folder)
        if is_there or (inodes := listed[folder]) is None:
            found.add(one.file)
        elif inode in inodes:
            rotated[folder, inode] = one.file
    return found.union(rotated.values())


def _list_inodes(folder: str) -> Collection[int] | None:
    """Return the inodes in a folder; None if it cannot be listed now."""
    try:
        with os.scandir(folder) as entries:
            return {entry.inode() for entry in entries}
    except FileNotFoundError:
        return ()
    except OSError:
        return None


def sample(
    asked: Mapping[FileEntry, Collection[Cursor]],
    *,
    from_end: Container[str],
    opened: Mapping[FileKey, int],
    originals: Mapping[FileEntry, Original],
) -> dict[FileKey, Sample | OSError]:
    """Return a sample of each file for the cursors that may fit.

    It has the last line as well if the file's group is in `from_end`.

    Files that are `opened`, by descriptor, are read whether or not they still have a name. Other
    rotated files are compared with the `originals` of their groups, which are rotated or deleted.
    For a file that cannot be read there is the error.

    Leaves out files that are not where the scan saw them, and rotated files whose live file changed
    meanwhile: it is unknown whether they are copies. Live files are sampled first: if the sample
    shows that the original is truncated, its copy is whole.
    """
    found: dict[FileKey, Sample | OSError] = {}
    lives: dict[str, Sample] = {}
    heads: dict[FileEntry, bytes] = {}
    by_group = defaultdict[str, dict[FileEntry, Original]](dict)
    for one, original in originals.items():
        by_group[one.group][one] = original
    for entry in sorted(asked, key=lambda one: (not one.is_live, one.compression is not None)):
        live = lives.get(entry.group)
        seen = _probe(
            entry,
            asked[entry],
            from_end=entry.group in from_end,
            live=live,
            opened=opened.get(entry.key, -1),
        )
        if isinstance(seen, Sample) and not (
            entry in originals and (entry.key in opened or _is_known(seen, asked[entry]))
        ):
            if entry.is_live:
                lives[entry.group] = seen
            elif live and seen.head and live.head.startswith(seen.beginning):
                seen = _compare(live, seen)
            if isinstance(seen, Sample) and not entry.is_live:
                seen = _compare_with_originals(seen, by_group[entry.group], heads)
        if seen is not None:
            found[entry.key] = seen
    return found


def _is_known(seen: Sample, cursors: Iterable[Cursor]) -> bool:
    """Whether a file has what was read of it; if not, another one has its inode by now."""
    same = (one for one in cursors if one.identity.inode == seen.entry.key.inode)
    return any(one.file in seen.fits for one in same)


def _compare(live: Sample, rotated: Sample) -> Sample | None:
    """Return the sample of a rotated file, compared with the live file; None if that changed."""
    if rotated.end is None:
        return replace(rotated, is_in_live=rotated.is_partial)
    now = _probe(live.entry, [rotated.end])
    if not isinstance(now, Sample) or now.size < live.size or not now.head.startswith(live.head):
        return None
    others = () if now.fits else {live.entry.key}
    return replace(rotated, is_in_live=bool(now.fits), differs_from=others)


def _compare_with_originals(
    seen: Sample, originals: Mapping[FileEntry, Original], heads: dict[FileEntry, bytes]
) -> Sample:
    """Return the sample with the originals of its group whose content the file does not have.

    `heads` keeps how each original begins: there may be thousands of it and of such files.
    """
    others, beside = set(seen.differs_from), set[FileKey]()
    for one, known in originals.items():
        with suppress(OSError):  # it may be another file by now
            if one not in heads:
                heads[one] = _read_head(one, known)
            head = heads[one]
            # if a file is rotated each second, decompressing all pairs takes too long
            if not (seen.head.startswith(head) or head.startswith(seen.head)):
                others.add(one.key)
                continue
            with _open(one, known.descriptor) as original:
                if not _has_content(seen, one, original):
                    others.add(one.key)
                elif one.is_live and 0 < seen.born <= _find_deletion(original):
                    beside.add(one.key)
    return replace(seen, differs_from=others, made_beside=beside)


def _read_head(one: FileEntry, known: Original) -> bytes:
    """Return how an original begins; raises OSError."""
    if one.compression is not None:
        return known.beginning
    with _open(one, known.descriptor) as original:
        return os.pread(original, HEAD_BYTES, 0)


def _find_deletion(descriptor: int) -> int:
    """Return when a file lost its last name; 0 if it has one, or was written to since."""
    status = os.fstat(descriptor)
    is_deleted = not status.st_nlink and status.st_mtime_ns < status.st_ctime_ns
    return status.st_ctime_ns if is_deleted else 0


@contextmanager
def _open(entry: FileEntry, opened: int = -1) -> Iterator[int]:
    descriptor = open_file(entry) if opened < 0 else os.dup(opened)
    try:
        yield descriptor
    finally:
        close(descriptor)


def _has_content(seen: Sample, original: FileEntry, descriptor: int) -> bool:
    """Whether a file has the bytes of an original: all, or 1 KiB at least if that is longer."""
    if not original.compression and seen.size > os.fstat(descriptor).st_size:
        return False
    with _open(seen.entry) as copy:
        at, ours_in, theirs_in = 0, _content_of(copy, seen.entry), _content_of(descriptor, original)
        while at < _MOST_COMPARED:
            ours = ours_in.read(at, at + _STEP)
            theirs = theirs_in.read(at, at + max(1, len(ours)))
            if not ours:
                return not theirs or at >= HEAD_BYTES or seen.is_partial
            if ours != theirs:
                # it replaced its half copy, which is read to its end first
                is_begun = ours.startswith(theirs) and at + len(theirs) >= HEAD_BYTES
                return is_begun and seen.entry.path == original.path and not theirs_in.is_complete
            at += len(ours)
    return True


class _Plain:
    """The content of a file that is not compressed."""

    is_complete = True

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - start, start)


def _content_of(descriptor: int, entry: FileEntry) -> Decompressor | _Plain:
    packing = entry.compression
    return _Plain(descriptor) if packing is None else Decompressor(descriptor, packing)


def _probe(
    entry: FileEntry,
    cursors: Collection[Cursor],
    *,
    from_end: bool = False,
    live: Sample | None = None,
    opened: int = -1,
) -> Sample | OSError | None:
    descriptor = -1
    try:
        descriptor = open_file(entry) if opened < 0 else os.dup(opened)
        if descriptor < 0:
            return None
        if entry.compression is not None:
            content = Decompressor(descriptor, entry.compression)
            return _sample_compressed(content, entry, cursors, live)
        return sample_plain(descriptor, entry, cursors, from_end=from_end)
    except OSError as error:
        return None if descriptor < 0 and error.errno in PASSING else error
    finally:
        close(descriptor)


def sample_plain(
    descriptor: int, entry: FileEntry, cursors: Collection[Cursor], *, from_end: bool = False
) -> Sample:
    """Return a sample of an open file that is not compressed; raises OSError."""

    def before(position: int, length: int = TAIL_BYTES) -> bytes:
        start = max(0, position - length)
        return os.pread(descriptor, position - start, start)

    end = os.fstat(descriptor).st_size
    begun = os.pread(descriptor, HEAD_BYTES, 0)
    likely = (cursor for cursor in cursors if _has_head_of(cursor, begun))
    tails = {one.file: before(one.offset, one.identity.tail_length) for one in likely}
    ending = before(end)
    last = _find_last_line(before, end) if from_end else 0
    behind = last, before(last)
    # head and size are read last: they show a truncation before that
    head = os.pread(descriptor, HEAD_BYTES, 0)
    now = os.fstat(descriptor)
    fits = _find_fitting(cursors, now.st_size, head, tails)
    written = written_head(descriptor, head, now.st_size)
    at_end = _cursor_at_end(end, written, ending)
    entry = replace(entry, size=now.st_size, modified=now.st_mtime_ns)
    born = _find_birth(descriptor)
    return Sample(entry, now.st_size, head, fits, at_end, last=behind, written=written, born=born)


def _find_birth(descriptor: int) -> int:
    """Return when a file was made; 0 if its file system, or the C library, does not say."""
    answer = ctypes.create_string_buffer(_STATUS.size)
    with suppress(AttributeError):
        _libc.statx(descriptor, b"", _AT_EMPTY_PATH, _BORN, answer)
    mask, seconds, nanoseconds = _STATUS.unpack(answer)
    return seconds * 1_000_000_000 + nanoseconds if mask & _BORN else 0


def _cursor_at_end(size: int, head: bytes, tail: bytes) -> Cursor:
    return Cursor("", "", size, identify(0, head[:size], tail), 0)


def _find_last_line(before: Callable[[int, int], bytes], size: int) -> int:
    for end in range(size, max(0, size - _FARTHEST), -_STEP):
        if behind := before(end, _STEP).rfind(b"\n") + 1:
            return max(0, end - _STEP) + behind
    return 0


def _find_fitting(
    cursors: Collection[Cursor], size: int, head: bytes, tails: Mapping[str, bytes]
) -> set[str]:
    fitting = set()
    for cursor in cursors:
        # there are tails of those cursors only that the head fits
        tail, has_size = tails.get(cursor.file, b""), size >= cursor.offset
        is_same = has_size and fingerprint(tail) == cursor.identity.tail_hash
        if is_same and _has_head_of(cursor, head):
            fitting.add(cursor.file)
    return fitting


def _has_head_of(cursor: Cursor, head: bytes) -> bool:
    known = cursor.identity
    return fingerprint(head[: known.head_length]) == known.head_hash


def _sample_compressed(
    content: Decompressor, entry: FileEntry, cursors: Collection[Cursor], live: Sample | None
) -> Sample:
    head = content.read(0, HEAD_BYTES)
    # in order, since it can only go forward
    likely = sorted(
        (c.offset, c.file, c.identity.tail_length) for c in cursors if has_head(c, head)
    )
    tails = {file: content.read(max(0, end - length), end) for end, file, length in likely}
    like = live if live and head and live.head.startswith(head) else None
    if like:
        most = like.size + _MOST_GROWN
        while content.reached < most and not content.is_at_end():
            content.read(max(0, content.reached - TAIL_BYTES), content.reached + _STEP)
    at_end, is_complete = content.is_at_end(), content.is_complete
    size = content.reached  # if the content goes on, the check has decompressed more of it
    end = None
    if like and (is_complete or not at_end):
        end = _cursor_at_end(size, head, content.read(max(0, size - TAIL_BYTES), size))
    partial = at_end and not is_complete and not content.damage
    fits = _find_fitting(cursors, size, head, tails)
    return Sample(entry, size, head, fits, end, is_partial=partial, damage=content.damage)
