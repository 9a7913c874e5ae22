"""One closed segment compressed: whole and on disk, or left as it was. Killed at any moment, the next look finishes it."""

import fcntl
import gzip
import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

import zstandard

from broker.app.faults import fault
from receiver.storage import rotation
from receiver.storage.opening import descriptor_of, is_regular, opened, sync_folder

__all__ = ["SUFFIXES", "clear_away", "pack"]

SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
_PIECE = 1024 * 1024


def pack(segment: Path, compress: str, stopped: Callable[[], bool]) -> None:
    """Put the compressed form in the place of a segment, with its mode, owner and time; raises OSError.

    What is compressed already, in whatever way, stays so; a day's file, which has no number, may have got lines since, and
    goes only when they are the same. Leaves off soon after `stopped()` is true, and where another
    process has the segment in its hands.
    """
    plain = segment.with_name(rotation.plain_name(segment.name))
    with suppress(FileNotFoundError):
        if not is_regular(plain):
            return
        # what else stands at that name, a link for one, is no compressed form: it is replaced
        packed = [path for end in SUFFIXES.values() if is_regular(path := _with(plain, end))]
        if packed:
            is_done = rotation.is_closed(plain.name) or _is_same(plain, packed[0])
        else:
            is_done = compress in SUFFIXES and _pack(plain, SUFFIXES[compress], stopped)
        if is_done:
            plain.unlink()


def clear_away(folder: Path, name: str) -> None:
    """Remove a compressed form that somebody died over; one that is being written stays. Raises OSError."""
    for suffix in SUFFIXES.values():
        half = _half(folder / name, suffix)
        if half.is_symlink():  # not ours; to remove it does nothing to what it leads to
            half.unlink()
        with suppress(FileNotFoundError, BlockingIOError), opened(half, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            half.unlink()


def _pack(plain: Path, suffix: str, stopped: Callable[[], bool]) -> bool:
    half = _half(plain, suffix)
    with (
        opened(plain, "rb") as source,
        os.fdopen(descriptor_of(half, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as raw,
    ):
        if not _is_mine(raw, half):
            return False
        try:
            if not _compress(source, raw, suffix, stopped):
                return False
            fault("compressed")
            half.replace(_with(plain, suffix))
        finally:
            half.unlink(missing_ok=True)
        sync_folder(plain.parent)
        fault("packed")
        return os.fstat(source.fileno()).st_size == source.tell()


def _with(plain: Path, suffix: str) -> Path:
    return plain.with_name(plain.name + suffix)


def _is_same(plain: Path, packed: Path) -> bool:
    with opened(plain, "rb") as source, opened(packed, "rb") as raw:
        try:
            return _digest(source) == _digest(_READERS[packed.suffix](raw))
        except (zstandard.ZstdError, EOFError, gzip.BadGzipFile):
            return False


def _digest(file: IO[bytes]) -> bytes:
    digest = hashlib.blake2b()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.digest()


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
    if like.st_size != source.tell():
        return False
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


def _unzstd(raw: IO[bytes]) -> Any:
    return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=False)


def _ungzip(raw: IO[bytes]) -> Any:
    return gzip.GzipFile(fileobj=raw)


_READERS: dict[str, Callable[[IO[bytes]], Any]] = {".zst": _unzstd, ".gz": _ungzip}
_WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".zst": _zstd,
    ".gz": _gzip,
}
