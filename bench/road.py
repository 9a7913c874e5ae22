"""Lines with the time of their write: written at a steady rate, and seen to arrive.

A reader follows the received file as `tail -F` would, and both use the clock of this machine.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.field.system import System
from tests.support.lines import LogLines
from tests.support.oracle import Verdict, judge_host
from tests.support.processes import Process, Processes, wait_until

HOST = "web01"
"""The host whose lines these are."""
LINE_BYTES = 200
"""The length of every line with its newline."""
PATIENCE = 60.0
"""Seconds until all has come that was written."""
_WRITES = 1_000  # a second, at most
_TIME_DIGITS = 20
_LOOK = 0.001  # seconds between looks at the received file, and between writes


class Arrival(NamedTuple):
    """A line: when it was written and when it came, in nanoseconds by the clock of this machine."""

    written: int
    came: int


class Road:
    """Writes lines at one end of the path and sees them arrive at the other."""

    def __init__(self, files: Sequence[Path], rate: int, output: Path, follow: str = HOST) -> None:
        """Write so many lines a second to `files`, one after the other, 1,000 times at most.

        Follows the received file of the host `follow` in `output`.
        """
        self.files, self.output = files, output
        self._open_files = [path.open("ab", buffering=0) for path in files]
        self._per_write = max(1, rate // _WRITES)
        self._rate = rate / self._per_write
        self._texts = _texts()
        self._received = output / f"{follow}.log"
        self._opened: int | None = None
        self._arrivals: list[tuple[int, bytes]] = []
        self.written = self.seen = 0

    def write_for(self, seconds: float) -> None:
        """Write and look; what is late is written at once."""
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            for number in range(done, int(passed * self._rate)):
                text = self._text(number)
                self._open_files[number % len(self._open_files)].write(text)
                self.written += len(text)
                done += 1
            self.read()
            time.sleep(_LOOK)

    def _text(self, number: int) -> bytes:
        head, texts = b"%0*d " % (_TIME_DIGITS, _now()), self._texts
        begin = number * self._per_write
        numbers = range(begin, begin + self._per_write)
        return b"".join(head + texts[index % len(texts)] for index in numbers)

    def wait_for_all(self, watched: Iterable[Process]) -> None:
        """Look until as much has come as was written; raises `TookTooLong` and `ProgramDied`."""

        def have() -> bool:
            self.read()
            return self.seen >= self.written

        wait_until("all is received", have, PATIENCE, list(watched), _LOOK)

    def judge(self) -> Verdict:
        """Judge the received lines of `HOST`."""
        return judge_host(self.files, self.output, HOST)

    def expect(self, size: int) -> None:
        """Wait for so many bytes more, which others have written."""
        self.written += size

    def read(self) -> None:
        """Read what has come."""
        if self._opened is None:
            with suppress(FileNotFoundError):
                self._opened = os.open(self._received, os.O_RDONLY | os.O_CLOEXEC)
            return
        if data := os.read(self._opened, 16 * 1024 * 1024):
            self._arrivals.append((_now(), data))
            self.seen += len(data)

    def forget(self) -> None:
        """Leave out of `latencies` what has come so far; only where all has."""
        self._arrivals = []

    def latencies(self) -> list[float]:
        """Return the milliseconds that each line took which came since the last call."""
        return [(arrival.came - arrival.written) / 1e6 for arrival in self.arrivals()]

    def arrivals(self) -> Iterator[Arrival]:
        """Yield the lines since the last call, but torn ones, which have no time."""
        left, arrivals = b"", self._arrivals
        self._arrivals = []
        for came, data in arrivals:
            *lines, left = (left + data).split(b"\n")
            for line in lines:
                if (written := line[:_TIME_DIGITS]).isdigit():
                    yield Arrival(int(written), came)
        if left:
            self._arrivals.insert(0, (0, left))


@contextmanager
def live(
    system: System, folder: Path, rate: int, settle: float, files: int = 1
) -> Iterator[tuple[Road, Mapping[str, Process]]]:
    """Have a system follow files, to which lines are written, in an empty folder.

    Yields the road and all programs, the agent last, after `settle` seconds of lines that are not
    counted. Raises TookTooLong and ProgramDied.
    """
    logs, place = make_folders(folder)
    paths = [logs / f"app{number}.log" for number in range(files)]
    for path in paths:
        path.touch()
    with Processes(place) as processes:
        staged = system.stage(place, processes)
        road = Road(paths, rate, staged.output)
        programs = {**staged.centre, "agent": staged.start_agent(HOST, logs)}
        road.write_for(settle)
        road.wait_for_all(programs.values())
        road.forget()
        yield road, programs


def make_folders(folder: Path) -> tuple[Path, Path]:
    """Make the folders of a host's logs and of a system, in an empty folder."""
    found = folder / "logs", folder / "system"
    for path in found:
        path.mkdir()
    return found


def _texts() -> list[bytes]:
    """Return what follows the time in lines, all of one length."""
    size = LINE_BYTES - _TIME_DIGITS - 2
    lines = LogLines("live", 1).take(10_000).splitlines()
    return [line[:size].ljust(size, b".") + b"\n" for line in lines]


def _now() -> int:
    return time.time_ns()
