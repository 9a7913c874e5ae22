"""System calls that make syncing cheap: writing that begins early, and one sync for many files.

A beginning promises nothing: what is on disk is told by a sync alone, errors too. Many files whose bytes are on their way
already share one commit of the file system's journal; synced one after the other from scratch each waits for its own.
"""

import ctypes
import errno
import os
import platform
import sys
from pathlib import Path

__all__ = ["begin", "can_sync_all", "is_local", "sync_all", "write_rest"]

_START = 2  # SYNC_FILE_RANGE_WRITE; with the other flags it would take notice of errors in fdatasync's stead
_TO_THE_END = ctypes.c_int64(0)
_TRUSTED = {
    "ext3",
    "ext4",
    "f2fs",
    "xfs",
}  # of FUSE, for one, syncfs returns before anything is safe
_LOCAL = {*_TRUSTED, "btrfs", "ext2", "overlay", "tmpfs", "zfs"}
"""File systems of one machine, whose processes share memory."""
_TELLS_ERRORS = (5, 8)  # the first Linux whose syncfs does

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_sync_file_range = getattr(_libc, "sync_file_range", None)
_syncfs = getattr(_libc, "syncfs", None)


def begin(descriptor: int) -> None:
    """Start writing what is not on disk yet, and return; does nothing where the system has no such call."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, _TO_THE_END, _TO_THE_END, _START)


def can_sync_all(descriptor: int) -> bool:
    """Whether `sync_all` is as good as a sync of each file: it waits for the disk, and tells of errors."""
    return (
        _syncfs is not None
        and _release() >= _TELLS_ERRORS
        and _kind(os.fstat(descriptor).st_dev) in _TRUSTED
    )


def is_local(folder: Path) -> bool:
    """Whether a folder is known to be on a file system that only this machine writes to; raises OSError."""
    return _kind(folder.stat().st_dev) in _LOCAL


def sync_all(descriptor: int) -> bool:
    """Bring the whole file system that a descriptor is in to disk; False, and nothing done, where that proves nothing.

    Files of others are waited for, too. Raises OSError when any write to it has failed since the descriptor was opened,
    so that it must be older than the bytes in question.
    """
    if not can_sync_all(descriptor):
        return False
    if _syncfs and _syncfs(descriptor) == 0:
        return True
    number = ctypes.get_errno() or errno.EIO
    raise OSError(number, os.strerror(number))


def write_rest(descriptor: int, rest: bytes) -> None:
    """Write what one call did not take; raises OSError."""
    view = memoryview(rest)
    while view:
        view = view[os.write(descriptor, view) :]


def _release() -> tuple[int, ...]:
    major, _, rest = platform.release().partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _kind(device: int) -> str:
    """Return the kind of the file system that a device holds, by proc(5); empty where it is not told."""
    place = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return ""
    for mount in mounts:
        about, _, kind = mount.decode(errors="replace").partition(" - ")
        if about.split()[2] == place:
            return kind.split()[0]
    return ""
