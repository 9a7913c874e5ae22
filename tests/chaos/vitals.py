"""What processes hold, read from /proc: descriptors, sockets among them, threads, memory. Within a namespace of its own all that live are the run's."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.descriptors import held_by

__all__ = ["Life", "Vitals", "lives"]

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a process holds at a moment; `sockets` are some of its `descriptors`, `resident` is in KiB."""

    descriptors: int
    threads: int
    resident: int
    sockets: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """A process: `began` is in ticks since the machine's start, and tells it from another one that has its number later."""

    pid: int
    began: int
    parent: int
    is_zombie: bool
    words: str
    vitals: Vitals
    folder: str = ""  # in which it works

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.began

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.began / _TICKS

    @property
    def program(self) -> str:
        """The name of the file that it runs."""
        return self.words.partition(" ")[0].rpartition("/")[2]

    def __str__(self) -> str:
        return f"process {self.pid} ({self.words[:160] or 'without a command line'})"


def lives() -> list[Life]:
    """Return all processes but this one."""
    pids = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    return [one for pid in sorted(pids) if pid != os.getpid() and (one := _life(pid))]


def _life(pid: int) -> Life | None:
    """Return what there is to see of a process, None when it has gone."""
    folder = _PROC / str(pid)
    try:
        # the name stands in parentheses and may hold anything; what comes behind are fields 3 and on of proc(5)
        fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        held = [] if fields[0] == "Z" else held_by(pid)
        sockets = sum(one.startswith("socket:") for one in held)
        where = "" if fields[0] == "Z" else str((folder / "cwd").readlink())
    except OSError:
        return None
    vitals = Vitals(len(held), int(fields[17]), int(fields[21]) * _PAGE, sockets)
    return Life(
        pid, int(fields[19]), int(fields[1]), fields[0] == "Z", words.strip(), vitals, where
    )
