"""A closed segment compressed: whole and on disk, or left as it was. Killed at any moment, the next look finishes it."""

import gzip
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

import zstandard

from broker.app.faults import fault
from receiver.storage.opening import descriptor_of, is_regular, opened, sync_folder

__all__ = ["SUFFIXES", "compress_segment", "compressed_form"]

SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
_PIECE = 1024 * 1024


def compress_segment(plain: Path, method: str, stopped: Callable[[], bool]) -> None:
    """Put the compressed form in the place of a segment, with its mode, owner and time; raises OSError.

    One caller at a time. What is compressed already, in whatever way, stays so. Leaves off soon after `stopped()` is true.
    A file of a day may have got lines since it was compressed: it stays beside its compressed form, which has another time.
    """
    with suppress(FileNotFoundError):
        if not is_regular(plain):
            return
        found = compressed_form(plain)
        if found is None and method in SUFFIXES:
            found = _written(plain, SUFFIXES[method], stopped)
        if found and found.lstat().st_mtime_ns == plain.lstat().st_mtime_ns:
            plain.unlink()


def compressed_form(plain: Path) -> Path | None:
    """Return the compressed form of a segment, None where there is none; a link to one is none. Raises OSError."""
    forms = (plain.with_name(plain.name + suffix) for suffix in SUFFIXES.values())
    return next(filter(is_regular, forms), None)


def _written(plain: Path, suffix: str, stopped: Callable[[], bool]) -> Path | None:
    """Write the compressed form; None where that was broken off, or the segment has grown meanwhile."""
    half, form = plain.with_name(f".{plain.name}.new"), plain.with_name(plain.name + suffix)
    half.unlink(missing_ok=True)  # of a process that died over it
    try:
        with (
            opened(plain, "rb") as source,
            os.fdopen(
                descriptor_of(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as raw,
        ):
            if not _compress(source, raw, suffix, stopped):
                return None
        fault("compressed")
        half.replace(form)
    finally:
        half.unlink(missing_ok=True)
    sync_folder(plain.parent)
    fault("packed")
    return form


def _compress(source: IO[bytes], raw: IO[bytes], suffix: str, stopped: Callable[[], bool]) -> bool:
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


def _zstd(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)


def _gzip(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)


_WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".zst": _zstd,
    ".gz": _gzip,
}
