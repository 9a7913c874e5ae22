"""One closed segment compressed: whole and on disk, or left as it was. Killed at any moment, the next look finishes it."""

import fcntl
import gzip
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

import zstandard

from receiver.writing import rotation
from receiver.writing.logbook import sync_folder

__all__ = ["SUFFIXES", "clear_away", "pack"]

SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
_PIECE = 1024 * 1024


def pack(segment: Path, compress: str, stopped: Callable[[], bool]) -> None:
    """Put the compressed form in the place of a segment, with its mode, owner and time; raises OSError.

    What is compressed already, in whatever way, stays so. Leaves off soon after `stopped()` is true, and where another
    process has the segment in its hands.
    """
    plain = segment.with_name(rotation.plain_name(segment.name))
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(plain.lstat().st_mode):
            return
        is_packed = any(plain.with_name(plain.name + end).exists() for end in SUFFIXES.values())
        if is_packed or (compress in SUFFIXES and _pack(plain, SUFFIXES[compress], stopped)):
            plain.unlink()


def clear_away(folder: Path, name: str) -> None:
    """Remove a compressed form that somebody died over; one that is being written stays. Raises OSError."""
    for suffix in SUFFIXES.values():
        half = _half(folder / name, suffix)
        with suppress(FileNotFoundError, BlockingIOError), half.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            half.unlink()


def _pack(plain: Path, suffix: str, stopped: Callable[[], bool]) -> bool:
    half = _half(plain, suffix)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with (
        os.fdopen(os.open(plain, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as source,
        os.fdopen(os.open(half, flags, 0o600), "r+b") as raw,
    ):
        if not _is_mine(raw, half):
            return False
        try:
            if not _compress(source, raw, suffix, stopped):
                return False
            half.replace(plain.with_name(plain.name + suffix))
        finally:
            half.unlink(missing_ok=True)
    sync_folder(plain.parent)
    return True


def _is_mine(raw: IO[bytes], half: Path) -> bool:
    """Take the lock of a half-made file; what another receiver of the same folder is at is left to it."""
    try:
        fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        return os.path.samestat(half.lstat(), os.fstat(raw.fileno()))
    except FileNotFoundError:
        return False  # that's fine: the other one has just finished


def _compress(source: IO[bytes], raw: IO[bytes], suffix: str, stopped: Callable[[], bool]) -> bool:
    raw.truncate(0)
    with _WRITERS[suffix](raw) as packed:
        while piece := source.read(_PIECE):
            if stopped():
                return False
            packed.write(piece)
    raw.flush()
    like = os.fstat(source.fileno())
    with suppress(PermissionError):  # that's fine: only root may give a file away
        os.fchown(raw.fileno(), like.st_uid, like.st_gid)
    os.fchmod(raw.fileno(), like.st_mode & 0o777)
    os.utime(raw.fileno(), ns=(like.st_mtime_ns, like.st_mtime_ns))
    os.fsync(raw.fileno())
    return True


def _half(plain: Path, suffix: str) -> Path:
    return plain.with_name(f".{plain.name}{suffix}.new")


def _zstd(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)


def _gzip(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)


_WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".zst": _zstd,
    ".gz": _gzip,
}
