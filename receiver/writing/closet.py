"""Closed segments after their commit: compressed, and the oldest pruned. Off the hot path, and never a live file.

A segment that an undo may still need is never touched. Killed at any moment it leaves a segment plain, or compressed
beside the plain one, and the next look finishes that.
"""

import gzip
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from receiver.writing import journal, rotation
from receiver.writing.logbook import sync_folder
from receiver.writing.owners import owner_of

__all__ = ["Order", "tidy"]

_SUFFIXES = {"zstd": ".zst", "gzip": ".gz"}
_PIECE = 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted: `compress` is zstd, gzip or none; `keep` segments stay per host, 0 for all of them."""

    output: Path
    state: Path
    compress: str
    keep: int


def tidy(order: Order, closed: tuple[str, ...] | None, stopped: Callable[[], bool]) -> None:
    """Compress the committed segments named and prune their hosts' oldest; None means all that are ours and committed.

    An error is logged and left for the next look; lines are never at stake, since a segment goes only when its
    compressed form is on disk. Leaves off soon after `stopped()` is true.
    """
    try:
        if closed is None:
            closed = _committed(order)
        for name in closed:
            if not stopped():
                _compress(order.output / name, _SUFFIXES.get(order.compress), stopped)
        if order.keep and closed and not stopped():
            _prune(order, {rotation.live_of(name) for name in closed})
    except OSError as error:
        logger.warning("closed files are left as they are for now: %s", error)


def _committed(order: Order) -> tuple[str, ...]:
    """Return the segments of the partitions whose journals are here, without those that an undo may need."""
    segments = rotation.closed_segments(_list(order.output))
    needed = _needed(
        order.state
    )  # after the listing: a segment in it was announced before it was made
    return tuple(
        name
        for live, numbers in segments.items()
        if (order.state / f"p{owner_of(order.output, live)}.journal").exists()
        for number, name in sorted(numbers.items())
        if number < needed.get(live, number + 1)
    )


def _needed(state: Path) -> dict[str, int]:
    """Return for each file of a batch that may be undone the lowest segment number that the undo needs."""
    needed: dict[str, int] = {}
    for path in state.glob("p*.journal"):
        try:
            batch = journal.decode(path.read_bytes())
        except journal.DamagedJournal as error:
            raise OSError(5, str(error), str(path)) from error
        for image in batch.images if batch else ():
            needed[image.name] = image.number
    return needed


def _compress(path: Path, suffix: str | None, stopped: Callable[[], bool]) -> None:
    plain = path.with_name(rotation.plain_name(path.name))
    if plain.is_symlink() or not plain.is_file():
        return
    is_packed = any(plain.with_name(plain.name + end).exists() for end in _SUFFIXES.values())
    if is_packed or (suffix is not None and _pack(plain, suffix, stopped)):
        plain.unlink()


def _pack(plain: Path, suffix: str, stopped: Callable[[], bool]) -> bool:
    """Write the compressed form, whole and on disk or not at all; False when stopped before the end."""
    fresh = plain.with_name(f".{plain.name}{suffix}.new")
    try:
        with plain.open("rb") as source, fresh.open("wb") as raw:
            os.fchmod(raw.fileno(), plain.stat().st_mode & 0o777)
            with _WRITERS[suffix](raw) as packed:
                while piece := source.read(_PIECE):
                    if stopped():
                        return False
                    packed.write(piece)
            raw.flush()
            os.fsync(raw.fileno())
        fresh.replace(plain.with_name(plain.name + suffix))
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(plain.parent)
    return True


def _zstd(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)


def _gzip(raw: IO[bytes]) -> AbstractContextManager[Any]:
    return gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)


_WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".zst": _zstd,
    ".gz": _gzip,
}


def _prune(order: Order, lives: set[str]) -> None:
    names = _list(order.output)
    needed = _needed(order.state)
    segments = rotation.closed_segments(names)
    for live in lives:
        of_host = segments.get(live, {})
        settled = [n for n in sorted(of_host) if n < needed.get(live, n + 1)]
        for number in settled[: -order.keep]:
            (order.output / of_host[number]).unlink()
            logger.info("pruned %s", of_host[number])


def _list(folder: Path) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 - names are what is wanted
