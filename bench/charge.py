"""Measure what programs use from now on: processor time, and the most memory of each process."""

import time
from collections.abc import Mapping

from bench.cpu import cpu_seconds, peak_bytes_of, proportional_bytes, resident_bytes
from bench.machine import touch_memory
from tests.support.processes import Process


class Charge:
    """An account of programs by what they are ("agent", "broker"); begins when it is made."""

    def __init__(self, programs: Mapping[str, Process], size: int = 0) -> None:
        """Measure these from now on, over `size` bytes of lines; memory is touched beforehand."""
        touch_memory(size)
        self._programs = dict(programs)
        self._before = {name: cpu_seconds(program) for name, program in programs.items()}
        self._began = time.monotonic()

    def add(self, name: str, program: Process) -> None:
        """Charge all that a program has used that was started since."""
        self._programs[name] = program
        self._before[name] = 0.0

    @property
    def programs(self) -> list[Process]:
        """All that are charged."""
        return list(self._programs.values())

    @property
    def seconds(self) -> float:
        """How long ago it began."""
        return time.monotonic() - self._began

    def cpu(self) -> dict[str, float]:
        """Return the user and system seconds of each, with all that it has started."""
        return {
            name: cpu_seconds(program) - self._before[name]
            for name, program in self._programs.items()
        }

    def shares(self) -> dict[str, float]:
        """Return the user and system time of all, and of each, in % of a core."""
        passed = self.seconds
        shares = {f"CPU % {name}": 100 * used / passed for name, used in self.cpu().items()}
        return {"CPU %": sum(shares.values()), **(shares if len(shares) > 1 else {})}

    def per_gb(self, size: int) -> dict[str, float]:
        """Return the user and system seconds of all, and of each, per GB (1e9 bytes) of `size`."""
        seconds = {f"CPU s/GB {name}": used / (size / 1e9) for name, used in self.cpu().items()}
        return {"CPU s/GB": sum(seconds.values()), **seconds}

    def memory(self) -> dict[str, float]:
        """Return the resident MiB of all, with shared pages divided by who shares them, and not."""
        return {
            "PSS MiB": sum(map(proportional_bytes, self.programs)) / 2**20,
            "RSS MiB": sum(map(resident_bytes, self.programs)) / 2**20,
        }

    def peak(self) -> int:
        """Return the sum of each process's peak resident bytes; shared pages count in each."""
        return sum(peak_bytes_of(pid) for program in self.programs for pid in program.tree())
