"""Bringing files to disk cheaply, and asking the system about file systems."""

import ctypes
import errno
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_START = 2  # SYNC_FILE_RANGE_WRITE; with the other flags it would take notice of errors in fdatasync's stead
_TO_THE_END = ctypes.c_int64(0)
_TRUSTED = {"ext3", "ext4", "f2fs", "xfs"}  # of FUSE, for one, syncfs returns before all is safe
_LOCAL = {*_TRUSTED, "btrfs", "ext2", "overlay", "tmpfs", "zfs"}
"""File systems of one machine, whose processes share memory."""

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_sync_file_range = getattr(_libc, "sync_file_range", None)
_syncfs = getattr(_libc, "syncfs", None)


def start_writeback(descriptor: int) -> None:
    """Start writing what is not on disk yet, and return; does nothing where the system has no such call."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, _TO_THE_END, _TO_THE_END, _START)


def can_sync_file_system(folder: int) -> bool:
    """Whether `sync_file_system` is as good as a sync of each file: it waits for the disk, tells of errors, and all are on one disk."""
    tells_errors = [int(part) for part in re.findall("[0-9]+", platform.release())[:2]] >= [5, 8]
    if _syncfs is None or not tells_errors or _kind(os.fstat(folder).st_dev) not in _TRUSTED:
        return False
    path = Path(f"/proc/self/fd/{folder}").readlink()
    return not any(point.startswith(f"{path}/") for _, point, _ in _mounts())


def is_local(folder: Path) -> bool:
    """Whether a folder is known to be on a file system that only this machine writes to; raises OSError."""
    return _kind(folder.stat().st_dev) in _LOCAL


def sync_file_system(descriptor: int) -> None:
    """Bring the whole file system that a descriptor is in to disk, where that `can_sync_file_system`.

    Files of others are waited for, too. Raises OSError when any write to it has failed since the descriptor was opened,
    so that it must be older than the bytes in question.
    """
    if _syncfs and _syncfs(descriptor):
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number))


def raise_if_failed(file: int | Path) -> None:
    """Raise OSError where the file system of a file has failed by now, though it may have synced without a word.

    So ext4 does for some milliseconds after it has given up its journal (fs/ext4/super.c, `ext4_handle_error`: until its
    superblock is written). The first change of an inode waits for the end of that, the second is refused.
    """
    os.utime(file)
    os.utime(file)


def write_all(descriptor: int, rest: bytes) -> None:
    """Write all of it, in as many calls as that takes; raises OSError."""
    view = memoryview(rest)
    while view:
        view = view[os.write(descriptor, view) :]


def _kind(device: int) -> str:
    """Return the kind of the file system that a device holds; empty where it is not told."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return next((kind for found, _, kind in _mounts() if found == number), "")


def _mounts() -> Iterator[tuple[str, str, str]]:
    """Yield device, folder and kind of each file system, by proc(5)."""
    for mount in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        about, _, kind = mount.partition(" - ")
        device, _, point = about.split()[2:5]
        yield device, point.replace("\\040", " "), kind.split()[0]
