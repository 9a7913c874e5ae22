"""How far source files have been received, in memory: so many of a host, and so many of all hosts together.

Whoever makes up file ids without end has the oldest files of that host forgotten, and nobody else's. Decides only.
"""

import heapq
from collections.abc import Iterator

__all__ = ["MOST_OF_HOST", "End", "Received"]

MOST_OF_HOST = 20_000
"""Files that are remembered of one host."""
_MOST = 200_000  # files of a partition; some 50 MB of memory

End = tuple[int, int]
"""The end of a file's last span, and when its block was read in nanoseconds since the epoch."""


class Received:
    """The ends of source files, by host and file id; of each host in the order in which they came last.

    `forgotten` is how many were forgotten for others to be remembered, `losers` are the hosts that lost their first one, both
    since the last `settle`. The same files in the same order leave the same ones remembered.
    """

    def __init__(self, most_of_host: int = MOST_OF_HOST, most: int = _MOST) -> None:
        """Know no file yet."""
        self._most_of_host = most_of_host
        self._most = most
        self._hosts: dict[str, dict[str, End]] = {}
        self._count = 0
        self._settled: set[str] = set()
        self.forgotten = 0
        self.losers: list[str] = []

    def get(self, host: str, file: str) -> End | None:
        """Return how far a file has come, None for one that is not remembered."""
        files = self._hosts.get(host)
        return files.get(file) if files else None

    def put(self, host: str, file: str, end: End) -> None:
        """Remember how far a file has come; the host's oldest is forgotten where it has too many."""
        files = self._hosts.setdefault(host, {})
        is_known = files.pop(file, None) is not None
        files[file] = end
        self._count += not is_known
        if len(files) > self._most_of_host:
            self._forget(host)
        if self._count > self._most:
            self._shed()

    def items(self) -> Iterator[tuple[str, str, End]]:
        """Yield host, file and end of all that are remembered, those of a host in their order."""
        for host, files in self._hosts.items():
            for file, end in files.items():
                yield host, file, end

    def settle(self) -> None:
        """Take what was forgotten so far as told."""
        self.forgotten = 0
        self.losers = []

    def settle_all(self) -> None:
        """Take it as told of every host that is full: it will have forgotten some before this was read."""
        full = [host for host, files in self._hosts.items() if len(files) >= self._most_of_host]
        self._settled.update(full)
        self.settle()

    def _forget(self, host: str) -> None:
        files = self._hosts[host]
        file = next(iter(files))
        end, _ = files.pop(file)
        if (
            not file and host
        ):  # its messages were received up to there, so that none of them is missing later
            begin, _ = self.get("", "") or (0, 0)
            self._hosts.setdefault("", {})[""] = (max(begin, end), 0)
        if not files:
            del self._hosts[host]
        self._count -= 1
        self.forgotten += 1
        if host not in self._settled:
            self._settled.add(host)
            self.losers.append(host)

    def _shed(self) -> None:
        """Forget the oldest of the hosts that have the most."""
        left = self._most - self._most // 100  # so that this is done once for thousands of files
        largest = [(-len(files), host) for host, files in self._hosts.items()]
        heapq.heapify(largest)
        while self._count > left:
            size, host = largest[0]
            self._forget(host)
            heapq.heapreplace(largest, (size + 1, host))
