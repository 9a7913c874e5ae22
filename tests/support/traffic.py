"""Applications that write logs: append to files in pieces that break anywhere, as programs do."""

import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.lines import LogLines

_TICK = 0.05


class Traffic:
    """Writes to several files from a thread until it is stopped; remembers what it wrote."""

    def __init__(self, files: Sequence[Path], lines_per_second: int, seed: int = 1) -> None:
        """Write at about that rate to each file; lines begin with the file's folder and name."""
        self._lines = {
            path: LogLines(f"{path.parent.name}/{path.name}", seed + number)
            for number, path in enumerate(files)
        }
        self._written = {path: bytearray() for path in files}
        self._chance = random.Random(seed)
        self._per_tick = max(1, round(lines_per_second * _TICK))
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> "Traffic":
        for path in self._lines:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def written(self) -> Mapping[Path, bytes]:
        """What was written to each file so far, over all of its rotations."""
        with self._writing:
            return {path: bytes(content) for path, content in self._written.items()}

    def rotate(self, path: Path) -> None:
        with self._writing:
            path.rename(path.with_name(f"{path.name}.1"))
            path.touch()

    def _run(self) -> None:
        while not self._ended.wait(_TICK):
            for path in self._lines:
                with self._writing:
                    self._append(path)

    def _append(self, path: Path) -> None:
        text = self._lines[path].take(self._chance.randrange(1, 2 * self._per_tick))
        middle = self._chance.randrange(len(text))
        with path.open("ab", buffering=0) as file:
            for piece in (text[:middle], text[middle:]):
                file.write(piece)
                if self._chance.random() < 0.1:
                    self._ended.wait(0.01)
        self._written[path] += text
