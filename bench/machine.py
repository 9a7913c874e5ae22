"""Describe the machine: cores, memory, processor, kernel, file system (Linux's /proc)."""

import mmap
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

_LEAST, _MOST = 50_000_000, 8_000_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; `file_system` is that of a folder. An unknown value is empty or 0."""

    cores: int
    gibibytes: int
    processor: str
    architecture: str
    kernel: str
    file_system: str

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.gibibytes} GiB, {self.architecture}"


def describe_machine(folder: Path) -> Machine:
    """Look at this machine, with the file system that `folder` is on."""
    memory = re.search(r"MemTotal:\s+(\d+) kB", _text("/proc/meminfo"))
    model = re.search(r"model name\s*: (.+)", _text("/proc/cpuinfo"))
    return Machine(
        os.cpu_count() or 0,
        round(int(memory[1]) / 2**20) if memory else 0,
        model[1] if model else "",
        platform.machine(),
        platform.release(),
        _file_system(folder.resolve()),
    )


def load() -> float:
    """Return how many processes ran or waited for a processor or a disk, over the last minute."""
    return round(os.getloadavg()[0], 2)


def touch_memory(size: int) -> None:
    """Touch the memory that a run over `size` bytes needs, so that a hypervisor brings it in.

    A page that is free for some seconds may be taken back by the host, and costs the one who is the
    next to write to it more than all else that is done with its lines; whom that meets is chance.
    Nothing is done for less than 50 MB.
    """
    if size < _LEAST:
        return
    free = re.search(r"MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"))
    length = min(max(_MOST, 2 * size), int(free[1]) * 1024 // 2 if free else 0)
    if length:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, length, flags=private).close()


def _file_system(folder: Path) -> str:
    # <id> <parent> <device> <root> <mount point> <options> … - <type> <source> <options>: proc(5);
    # the last of a point covers it
    mounts = {}
    for line in _text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mounts[before.split()[4]] = after.split()[0]
    return next(
        (mounts[path] for path in map(str, (folder, *folder.parents)) if path in mounts), ""
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
