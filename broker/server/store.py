"""The broker's folder on disk: made, locked, measured, and its small files written whole or not at all."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.folder import make_folder, read_file
from broker.app.whole import write_whole
from broker.auth.accounts import LOGS

__all__ = [
    "Space",
    "held_store",
    "measure",
    "remember_promise",
    "size_of_data",
    "streams_in",
    "told",
]

_LOCK = "logbroker.lock"
_PATIENCE = 2.0  # seconds: a broker that was killed just now needs a moment to let go
_DATA = "jetstream"
_PROMISE = "promise.json"


@dataclass(frozen=True, slots=True)
class Space:
    """Room on the disk of a store, in bytes: left free, held by the store already, and the disk's size.

    `promised` is what the streams in the store may grow to, by their own limits.
    """

    free: int
    held: int
    total: int
    promised: int


@contextmanager
def held_store(folder: Path) -> Iterator[int]:
    """Make the folder and hold its lock; gives the lock's file descriptor.

    Whoever inherits the descriptor holds the lock too, so a nats-server that outlives its parent keeps others out.
    Raises `OperatorError` when the folder cannot be used or another broker has it.
    """
    try:
        with make_folder(folder) as opened:
            descriptor = opened.open(_LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise told(folder, error) from None
    try:
        _lock(descriptor, folder)
        yield descriptor
    finally:
        os.close(descriptor)


def told(folder: Path, error: OSError) -> Exception:
    """Return an error of the store's disk as one for a person; any other one as it is."""
    if not Path(error.filename or ".").is_relative_to(folder):
        return error
    return OperatorError(
        f"cannot use the store {folder}: {error.strerror}; check --store-dir and its owner"
    )


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise OperatorError(
                f"another broker (process {owner or 'unknown'}) has the store {folder}; "
                "stop it, or choose another --store-dir"
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            error.filename = str(folder / _LOCK)
            raise told(folder, error) from None
        return


def size_of_data(folder: Path) -> int:
    """Return how many bytes the files of a store hold."""
    return _size(folder / _DATA)


def streams_in(folder: Path) -> frozenset[str]:
    """Return the names of the streams that a store has on disk, whatever their state."""
    found = (folder / _DATA / LOGS / "streams").glob("*/meta.inf")
    return frozenset(path.parent.name for path in found)


def measure(folder: Path) -> Space:
    """Return the room there is, and what the store takes of it already."""
    usage = shutil.disk_usage(folder)
    data = folder / _DATA
    return Space(usage.free, _size(data), usage.total, _promised(data))


def remember_promise(folder: Path, limit: int) -> None:
    """Keep the stream's limit in bytes beside the store, for one whose own record of it is encrypted."""
    if limit > 0 and _remembered(folder) != limit:
        write_whole(folder / _PROMISE, json.dumps({"version": 1, "max_bytes": limit}) + "\n")


def _remembered(folder: Path) -> int:
    try:
        limit = json.loads(read_file(folder / _PROMISE))["max_bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # that's fine: it only counts where nothing else tells
    return limit if isinstance(limit, int) else 0


def _promised(data: Path) -> int:
    promised = _remembered(data.parent) if any(data.glob("*/streams/*/meta.key")) else 0
    for path in data.glob("*/streams/*/meta.inf"):
        with suppress(OSError, ValueError, AttributeError):  # not ours to judge: nats-server will
            limit = json.loads(read_file(path)).get("max_bytes", 0)
            promised += limit if isinstance(limit, int) and limit > 0 else 0
    return promised


def _size(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - ten times faster
            except FileNotFoundError:
                continue  # a file that went meanwhile takes no room
    return size
