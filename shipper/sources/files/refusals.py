"""Recognises what is never followed: pseudo file systems, and folders that our programs write to.

A shipper that follows the files of a receiver ships its own lines again, without end. So a pattern
from outside never enters such a folder. A pattern whose fixed part is within one may: a shipper can
follow what was received from other hosts. Blocks, so it runs in a thread; lasts as long as a scan.
"""

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from nats_logship.app.files import FOLDER_MARKS

_PSEUDO = {
    *(0x9FA0, 0x62656572, 0x27E0EB, 0x63677270),  # proc, sysfs, cgroup, cgroup2
    *(0x64626720, 0x74726163, 0x73636673, 0x62656570),  # debugfs, tracefs, securityfs, configfs
    *(0xCAFE4A11, 0x6165676C, 0xF97CFF8C, 0xDE5E81E4),  # bpf, pstore, selinuxfs, efivarfs
    *(0x1CD1, 0x6E736673, 0x7655821, 0x43415D53),  # devpts, nsfs, resctrl, smackfs
    *(0x42494E4D, 0x65735543, 0x19800202),  # binfmt_misc, fusectl, mqueue
}
"""Types of file systems as in `statfs` (linux/magic.h)."""
_STATFS_BYTES = 1024
"""More than the size of `struct statfs`, whose first field is the type."""
_libc = ctypes.CDLL(None, use_errno=True)


class Refusals:
    """Checks folders and devices, each once."""

    def __init__(self) -> None:
        self._pseudo: dict[int, bool] = {}
        self._marked: dict[str, bool] = {}

    def is_pseudo(self, device: int, path: str) -> bool:
        """Whether the file system of a device, which `path` is in, has no files on any disk."""
        if device not in self._pseudo:
            answer = ctypes.create_string_buffer(_STATFS_BYTES)
            failed = _libc.statfs(os.fsencode(path), answer)
            kind = ctypes.c_ulong.from_buffer(answer).value & 0xFFFFFFFF
            self._pseudo[device] = not failed and kind in _PSEUDO
        return self._pseudo[device]

    def is_pseudo_path(self, path: str) -> bool:
        """Whether a path exists and is in a pseudo file system."""
        with suppress(OSError):
            return self.is_pseudo(os.stat(path).st_dev, path)  # noqa: PTH116 - a path of any bytes
        return False

    def note(self, folder: str, names: Iterable[str]) -> None:
        """Note the names in a folder, so that its mark need not be looked up."""
        self._marked[folder] = any(name in FOLDER_MARKS for name in names)

    def is_marked(self, folder: str) -> bool:
        """Whether one of our programs writes to a folder, as a mark in it says."""
        if folder not in self._marked:
            names = (f"{folder}/{mark}" for mark in FOLDER_MARKS)
            self._marked[folder] = any(map(os.path.lexists, names))
        return self._marked[folder]

    def owners(self, real: str) -> Iterator[str]:
        """Yield the marked folders that a path is in, or is; it leads through no symbolic link."""
        while real != "/":
            if self.is_marked(real):
                yield real
            real = os.path.dirname(real)  # noqa: PTH120 - a path of any bytes
