"""How much of each host is in the received files, cheaply: closed segments are unpacked once."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.support.received import read_segment, segments_by_host

__all__ = ["Received"]

_LATELY = 0.5  # seconds


class Received:
    """The output folder of a receiver, as it grows."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._known: dict[tuple[Path, int, int], int] = {}
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
            try:
                found[host] = sum(map(self._size, paths))
            except FileNotFoundError:
                continue
        return found

    def lately(self, host: str) -> int:
        """Return how many bytes there were of a host half a second ago at most; for many who ask often."""
        with self._looking:
            if time.monotonic() - self._looked > _LATELY:
                self._looked = time.monotonic()
                with suppress(OSError):  # a fault has hold of the folder: as it was
                    self._lately = self.sizes()
            return self._lately.get(host, 0)

    def _size(self, path: Path) -> int:
        status = path.stat()
        if path.suffix not in {".zst", ".gz"}:
            return status.st_size
        key = (path, status.st_ino, status.st_size)
        if key not in self._known:
            self._known[key] = len(read_segment(path))
        return self._known[key]
