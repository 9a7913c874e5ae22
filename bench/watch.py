"""What a program that ends by itself has used: its processes are looked at until then, and what each was last seen with counts."""

import time
from dataclasses import dataclass, field

from bench.cpu import cpu_by_process, proportional_bytes
from bench.processes import Process, ProgramDied, TookTooLong

__all__ = ["PARTS", "Watch"]

PARTS = ("driver", "JVM", "workers")
"""The processes of a program that runs Spark."""

_LOOK = 0.05
_MEMORY_EVERY = 20  # looks: the kernel walks through all pages for it


@dataclass(slots=True)
class Watch:
    """Looks at a program's processes, also those whose end nobody waits for: no account of reaped children knows of them.

    What a process uses after the last look, 50 ms before its end at most, is not seen. `memory` is the most that all had at a
    time, in bytes, shared pages divided among them.
    """

    program: Process
    memory: int = 0
    _seen: dict[int, tuple[str, float]] = field(default_factory=dict)

    def until_end(self, seconds: float) -> None:
        """Look until it ends; raises `TookTooLong`, and `ProgramDied` where it ends with another code than 0."""
        deadline, looks = time.monotonic() + seconds, 0
        while self.program.is_running():
            if time.monotonic() > deadline:
                words = self.program.last_words()
                raise TookTooLong(f"{self.program.name} did not end within {seconds:g} s: {words}")
            self._seen |= cpu_by_process(self.program)
            if looks % _MEMORY_EVERY == 0:
                self.memory = max(self.memory, proportional_bytes(self.program))
            looks += 1
            time.sleep(_LOOK)
        if code := self.program.wait(1):
            name = self.program.name
            raise ProgramDied(f"{name} ended with {code}: {self.program.last_words()}")

    @property
    def cpu(self) -> dict[str, float]:
        """User and system seconds, by the names of `PARTS`."""
        used = dict.fromkeys(PARTS, 0.0)
        for pid, (name, seconds) in self._seen.items():
            part = "JVM" if name == "java" else "workers"
            used["driver" if pid == self.program.pid else part] += seconds
        return used
