"""Closed segments after their commit: compressed, and the oldest pruned. Off the hot path, and never a live file.

Killed at any moment it leaves a segment plain, or compressed beside the plain one, and the next look finishes that.
"""

import gzip
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import zstandard

from receiver import rotation
from receiver.logbook import sync_folder

__all__ = ["tidy"]

_SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
_PIECE = 1024 * 1024

logger = logging.getLogger(__name__)


def tidy(output: Path, closed: tuple[str, ...] | None, compress: str, keep: int) -> None:
    """Compress the segments named, and prune their hosts' oldest beyond `keep` (0 keeps all); None means every host's.

    An error is logged and left for the next look; lines are never at stake, since a segment goes only when its
    compressed form is on disk.
    """
    names = sorted(os.listdir(output))  # noqa: PTH208 - names are what is wanted
    if closed is None:
        closed = tuple(name for name in names if rotation.is_closed(name))
    try:
        for name in closed:
            if compress in _SUFFIXES and Path(name).suffix not in _SUFFIXES.values():
                _compress(output / name, _SUFFIXES[compress])
        if keep:
            _prune(output, {rotation.live_of(name) for name in closed}, keep)
    except OSError as error:
        logger.warning("closed files are left as they are for now: %s", error)


def _compress(path: Path, suffix: str) -> None:
    if not path.exists():
        return
    target = path.with_name(path.name + suffix)
    if not target.exists():
        fresh = path.with_name(f".{path.name}{suffix}.new")
        with path.open("rb") as plain, fresh.open("wb") as raw:
            os.fchmod(raw.fileno(), path.stat().st_mode & 0o777)
            with _WRITERS[suffix](raw) as packed:
                shutil.copyfileobj(plain, packed, _PIECE)
            raw.flush()
            os.fsync(raw.fileno())
        fresh.replace(target)
        sync_folder(path.parent)
    path.unlink()


def _zstd(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)


def _gzip(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)


_WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".zst": _zstd,
    ".gz": _gzip,
}


def _prune(output: Path, lives: set[str], keep: int) -> None:
    segments = rotation.closed_segments(os.listdir(output))  # noqa: PTH208 - names are what is wanted
    for live in lives:
        of_host = segments.get(live, {})
        for number in sorted(of_host)[:-keep]:
            (output / of_host[number]).unlink()
            logger.info("pruned %s", of_host[number])
