"""The segments of inputs on disk: their names, and their locks.

A file of the folder of a host is `<name>-<number>-<file id>-<start>`: the input, the order of its
files, and the position of the segment's first byte.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote, unquote

from nats_logship.app.files import FOLDER_ID, Folder, make_folder
from nats_logship.app.locks import try_lock
from shipper.sources.files.identity import fingerprint
from shipper.sources.inputs import STANDARD_INPUT
from shipper.sources.spooled import Segment

_NAME = re.compile(r"(.+)-([0-9]{8,})-([^-]+-[^-]+)-([0-9]{1,18})")
_LONGEST_NAME = 150  # characters of the name of an input
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def open_home(state_dir: Path, host: str) -> Folder:
    """Return the folder of a host in `state_dir`, and make both; raises OSError."""
    with make_folder(state_dir, 0o700) as folder:
        os.close(folder.open(FOLDER_ID, os.O_RDONLY | os.O_CREAT, 0o600))
        return folder.make(host, 0o700)


def list_inputs(home: Folder) -> dict[str, str]:
    """Return the paths of inputs that are spooled, by the beginning of their segments' names."""
    names = (found[1] for name in home.names() if (found := _NAME.fullmatch(name)))
    return {name: unquote(name) for name in sorted(names)}


def name_input(path: str) -> str:
    """Return what the names of an input's segments begin with."""
    if path == STANDARD_INPUT:
        return "stdin"
    name = quote(os.fsencode(path), safe="")
    return name if len(name) <= _LONGEST_NAME else f"={fingerprint(name.encode())}"


class SpoolFolder:
    """The segments of the input at `path`; its methods raise OSError."""

    def __init__(self, home: Folder, path: str) -> None:
        self._home, self._name = home, name_input(path)
        self.path = home.path
        self.has_rebooted = False
        """Whether the machine has booted since the input was locked before."""
        self._is_locked = False

    def lock_input(self) -> bool:
        """Hold the input until the process ends; return False while another process does."""
        if self._is_locked:  # another descriptor of this process would not get the lock
            return True
        descriptor = self._home.open(f"{self._name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if try_lock(descriptor):
                boot = _BOOT.read_bytes()
                self.has_rebooted = os.pread(descriptor, len(boot), 0) != boot
                os.pwrite(descriptor, boot, 0)
                self._is_locked = True
        finally:
            if not self._is_locked:
                os.close(descriptor)
        return self._is_locked

    def take_over(self) -> Iterator[tuple[int, str, list[Segment]]]:
        """Yield the number, the id and the segments of each file, and lock them; the oldest first.

        Without those that another process holds, which ends soon or ships to another broker.
        """
        for (number, file), found in groupby(self._list(), itemgetter(0, 1)):
            segments = list[Segment]()
            try:
                for _, _, start, name in found:
                    segments.append(self._open(name, start))
            except OSError as error:
                for one in segments:
                    os.close(one.descriptor)
                segments = []
                if not isinstance(error, BlockingIOError):
                    raise
            yield number, file, segments

    def _list(self) -> list[tuple[int, str, int, str]]:
        found = filter(None, map(_NAME.fullmatch, self._home.names()))
        own = (one for one in found if one[1] == self._name)
        return sorted((int(one[2]), one[3], int(one[4]), one[0]) for one in own)

    def make(self, number: int, file: str, start: int) -> Segment:
        """Make a segment of a file, and lock it."""
        name = f"{self._name}-{number:08}-{file}-{start}"
        return self._open(name, start, os.O_CREAT | os.O_EXCL)

    def _open(self, name: str, start: int, flags: int = 0) -> Segment:
        descriptor = self._home.open(name, os.O_RDWR | flags, 0o600)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise BlockingIOError(errno.EWOULDBLOCK, f"another process holds {name}")
        return Segment(name, descriptor, start, os.fstat(descriptor).st_size)

    def remove(self, segment: Segment) -> None:
        """Remove a segment; if that fails, the next run does it."""
        with suppress(OSError):
            self._home.remove(segment.name)
        with suppress(OSError):  # of an earlier write; the descriptor is closed
            os.close(segment.descriptor)
