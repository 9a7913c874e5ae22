"""System calls that bring files to disk, and questions about the file system that they are on."""

import ctypes
import errno
import os
import platform
import re
import sys
from functools import cache
from pathlib import Path

_WRITE = 2  # SYNC_FILE_RANGE_WRITE; the other flags would consume an error that fdatasync must see
_WHOLE_FILE = ctypes.c_int64(0)
_SYNCED = {"ext3", "ext4", "f2fs", "xfs"}  # on others, such as FUSE, syncfs may return too early
_LOCAL = {*_SYNCED, "btrfs", "ext2", "overlay", "tmpfs", "zfs"}  # processes share its memory

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_sync_file_range = getattr(_libc, "sync_file_range", None)
syncfs = getattr(_libc, "syncfs", None)
"""The call of the system; None if it has none."""


def start_writeback(descriptor: int) -> None:
    """Start writing a file's dirty pages to disk and return at once.

    Does nothing where the system has no such call.
    """
    if _sync_file_range is not None:
        _sync_file_range(descriptor, _WHOLE_FILE, _WHOLE_FILE, _WRITE)


@cache
def can_sync_file_system(device: int) -> bool:
    """Whether `sync_file_system` is as safe as a sync of each file that is on the device.

    The kernel must report write errors (Linux 5.8), and the file system must wait for the disk.
    """
    reports_errors = [int(part) for part in re.findall("[0-9]+", platform.release())[:2]] >= [5, 8]
    return syncfs is not None and reports_errors and _find_kind(device) in _SYNCED


def sync_file_system(descriptor: int) -> None:
    """Bring the whole file system of a descriptor to disk, files of other programs included.

    Raises OSError if any write to it has failed since the descriptor was opened: open the
    descriptor before you write.
    """
    if syncfs and syncfs(descriptor):
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number))


def raise_if_failed(file: int | Path) -> None:
    """Raise OSError if the file system of a file has failed, to be called after a sync.

    When ext4 loses its journal, fsync returns 0 for some 30 ms although nothing reaches the disk
    any more (`ext4_handle_error` in fs/ext4/super.c, until the superblock is written). In that time
    the first change of an inode waits for the end, and the second one is refused.
    """
    os.utime(file)
    os.utime(file)


def is_local(folder: Path) -> bool:
    """Whether a folder is known to be on a file system of this machine alone; raises OSError."""
    return _find_kind(folder.stat().st_dev) in _LOCAL


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, in as many calls as the system needs; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _find_kind(device: int) -> str:
    """Return the kind of the file system on a device, by proc(5); empty if not known."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields, _, kind = mount.partition(" - ")
        if fields.split()[2] == number:
            return kind.split()[0]
    return ""
