"""What hosts have written by a moment, and whether all of it has been received, or was destroyed.

Bytes alone tell that as long as nothing is destroyed. What was destroyed may be sent again, and destroyed again, and counts more
than once then: so the last line of every log has to be seen as well, by its beginning, which tells it from all others.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from bench.received import read_segment, segments_of
from tests.chaos.hands import sizes_with
from tests.chaos.losses import TELLING

if TYPE_CHECKING:
    from tests.chaos.host import Host
    from tests.chaos.world import World

__all__ = ["Awaited", "last_mark"]

_MARK = 100  # bytes of a line's beginning: the numbers stand there


class Awaited:
    """What hosts have written by the moment in which this is made."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._sizes = {host.name: host.written() for host in world.hosts}
        self._waiting = {host.name: host for host in (world.hosts if world.destroyed else ())}
        self._marks = {name: _marks(host) for name, host in self._waiting.items()}
        self._seen: set[tuple[Path, int, int]] = set()

    def has_come(self) -> bool:
        """Say whether all of it has been received, or was destroyed."""
        world = self._world
        sizes = Counter(sizes_with(world.received.sizes(), world.taken))
        for destroyed in world.destroyed:
            sizes[destroyed.host] += len(destroyed.lines)
        has_enough = all(sizes[host] >= size for host, size in self._sizes.items())
        return has_enough and all(map(self._is_seen, self._marks))

    def _is_seen(self, host: str) -> bool:
        """Say whether the last lines of a host were seen; where all of them were destroyed, it is later ones that have to be."""
        left = self._marks[host]
        for lines in self._received(host):
            left = {mark for mark in left if mark not in lines}
        if left != self._marks[host]:
            self._waiting.pop(host, None)
        for destroyed in (one.lines for one in self._world.destroyed if one.host == host):
            left = {mark for mark in left if mark not in destroyed}
        if self._marks[host] and not left and host in self._waiting:
            self._seen.clear()
            self._marks[host] = _marks(self._waiting[host])
            return False
        self._marks[host] = left
        return not left

    def _received(self, host: str) -> Iterator[bytes]:
        """Yield what has been received of a host in files that were not looked at as they are."""
        kept = [one.kept for one in self._world.taken if one.host == host]
        # that's fine: a file is just being exchanged
        with suppress(OSError, ValueError, zstandard.ZstdError):
            for path in (*kept, *segments_of(self._world.output, host)):
                found = path.stat()
                known = (path, found.st_ino, found.st_size)
                if known not in self._seen:
                    yield read_segment(path)
                    self._seen.add(known)


def _marks(host: "Host") -> set[bytes]:
    return set(filter(None, map(last_mark, host.sources())))


def last_mark(source: bytes) -> bytes | None:
    """Return the beginning of the last whole line of a log that is long enough to be told from all others."""
    end = source.rfind(b"\n") + 1
    while end:
        begin = source.rfind(b"\n", 0, end - 1) + 1
        if end - begin >= TELLING:
            return source[begin : min(end, begin + _MARK)]
        end = begin
    return None
