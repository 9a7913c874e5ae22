"""The processor time of a program with everything that it started, from /proc."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass

from tests.support.processes import Process, proc, stat_of, wait_until

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Stat:
    """Fields of /proc/<pid>/stat (proc(5)): ticks of reaped children, and resident pages."""

    children: int
    pages: int


def cpu_seconds(process: Process) -> float:
    """Return user plus system seconds of the tree's living processes and of those they reaped.

    Not seen is a process whose parent died before it, or waits for none of its children, as Spark's
    daemon of Python workers: none of theirs ends in a run without faults that they outlive. The
    living are counted to the nanosecond, the reaped in ticks of 10 ms.
    """
    total = 0.0
    for pid in process.tree():
        if stat := _read(pid):
            with suppress(OSError):
                total += process_seconds(pid) + stat.children / _TICK
    return total


def process_seconds(pid: int) -> float:
    """Return user plus system seconds of a living process and its dead threads, to the nanosecond.

    By the clock that the kernel has for each process (clock_getcpuclockid(3)); raises OSError when
    it has ended.
    """
    return time.clock_gettime((~pid << 3) | 2)


def quiet_after(program: Process, most: float, every: float) -> float:
    """Return the CPU seconds of a program once it uses at most `most` of them in `every` seconds.

    Waits a minute at most.
    """
    used = cpu_seconds(program)

    def is_quiet() -> bool:
        nonlocal used
        time.sleep(every)
        before, used = used, cpu_seconds(program)
        return used - before <= most

    wait_until(f"{program.name} is quiet", is_quiet, 60, [program])
    return used


def resident_bytes(process: Process) -> int:
    """Return the resident bytes of the whole tree; shared pages count once for each process."""
    return sum(stat.pages for stat in _stats(process)) * _PAGE


def proportional_bytes(process: Process) -> int:
    """Return the resident bytes of the whole tree, each shared page divided by who shares it.

    That is Pss of proc(5).
    """
    texts = [proc(pid, "smaps_rollup").partition("\nPss:")[2].split() for pid in process.tree()]
    return sum(int(words[0]) for words in texts if words) * 1024


def peak_bytes_of(pid: int) -> int:
    """Return the most that a process ever had resident since its start; 0 once it has ended."""
    lines = proc(pid, "status").splitlines()
    sizes = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(sizes[0]) * 1024 if sizes else 0


def _stats(process: Process) -> list[_Stat]:
    return [stat for pid in process.tree() if (stat := _read(pid)) is not None]


def _read(pid: int) -> _Stat | None:
    if not (fields := stat_of(pid)):
        return None
    return _Stat(int(fields[13]) + int(fields[14]), int(fields[21]))
