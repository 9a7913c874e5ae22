"""What hosts have written by a moment, and whether all of it has been received, or was destroyed.

Bytes alone tell that as long as nothing is destroyed. What was destroyed may be sent again, and destroyed again, and counts more
than once then: so the last line of every log has to be seen as well, which is like no other (`Shape.plain`).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from tests.support.received import read_segment, segments_of

if TYPE_CHECKING:
    from tests.chaos.world import Host, World

__all__ = ["Awaited"]


class Awaited:
    """What hosts have written by the moment in which this is made."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._sizes = {host.name: host.written() for host in world.hosts}
        self._waiting = {host.name: host for host in (world.hosts if world.destroyed else ())}
        self._seen: set[tuple[Path, int, int]] = set()
        self._last = {name: _last_lines(host) for name, host in self._waiting.items()}

    def has_come(self) -> bool:
        """Say whether all of it has been received, or was destroyed."""
        sizes = Counter(self._world.received.sizes())
        for destroyed in self._world.destroyed:
            sizes[destroyed.host] += len(destroyed.lines)
        has_enough = all(sizes[host] >= size for host, size in self._sizes.items())
        return has_enough and all(map(self._is_seen, self._last))

    def _is_seen(self, host: str) -> bool:
        """Say whether the last lines of a host were seen; where all of them were destroyed, it is later ones that have to be."""
        left = self._last[host]
        for lines in self._received(host):
            left = {line for line in left if line not in lines}
        if left != self._last[host]:
            self._waiting.pop(host, None)
        gone = [one.lines for one in self._world.destroyed if one.host == host]
        left = {line for line in left if not any(line in lines for lines in gone)}
        if self._last[host] and not left and host in self._waiting:
            self._seen.clear()
            self._last[host] = _last_lines(self._waiting[host])
            return False
        self._last[host] = left
        return not left

    def _received(self, host: str) -> Iterator[bytes]:
        """Yield what has been received of a host in files that were not looked at as they are."""
        # that's fine: a file is just being exchanged
        with suppress(OSError, ValueError, zstandard.ZstdError):
            for path in segments_of(self._world.output, host):
                found = path.stat()
                known = (path, found.st_ino, found.st_size)
                if known not in self._seen:
                    yield read_segment(path)
                    self._seen.add(known)


def _last_lines(host: "Host") -> set[bytes]:
    whole = (source[: source.rfind(b"\n") + 1] for source in host.sources())
    return {source[source.rfind(b"\n", 0, -1) + 1 :] for source in whole if source}
