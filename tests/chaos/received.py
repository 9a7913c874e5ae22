"""How much of each host is in the received files, cheaply: closed segments are unpacked once. And whether all has come."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.received import is_packed, read_segment, segments_by_host

if TYPE_CHECKING:
    from tests.chaos.world import World

_LATELY = 0.5  # seconds


class Received:
    """The output folder of a receiver, as it grows."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._lately: dict[str, int] = {}
        self._looked = -_LATELY
        self._looking = threading.Lock()

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each host there are, unpacked; of a host whose file is just being exchanged, nothing."""
        try:
            segments = segments_by_host(self.output)
        except ValueError:
            return {}
        found: dict[str, int] = {}
        for host, paths in segments.items():
            with suppress(FileNotFoundError):
                found[host] = sum(map(_size, paths))
        return found

    def lately(self, host: str) -> int:
        """Return how many bytes there were of a host half a second ago at most; for many who ask often."""
        with self._looking:
            if time.monotonic() - self._looked > _LATELY:
                self._looked = time.monotonic()
                with suppress(OSError):  # a fault has hold of the folder: as it was
                    self._lately = self.sizes()
            return self._lately.get(host, 0)


def _size(path: Path) -> int:
    status = path.stat()
    if not is_packed(path):
        return status.st_size
    return _unpacked(path, status.st_ino, status.st_size)


@cache
def _unpacked(path: Path, _inode: int, _size: int) -> int:
    return len(read_segment(path))


def awaited(world: "World") -> Iterator[bool]:
    """Say again and again whether all that hosts have written by now has been received."""
    sizes = {host.name: host.written() for host in world.hosts}
    while True:
        come = world.received.sizes()
        yield all(come.get(host, 0) >= size for host, size in sizes.items())
