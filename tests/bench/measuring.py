"""Commands of bench/ run side by side with next to nothing to measure, and what they have put down."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.result import Record, read
from tests.support.processes import Process, Processes

__all__ = ["Measured", "measuring"]

_WITHOUT_US = (
    "catchup",
    "line_length",
    "soak",
    "steady",
    "wan",
)  # Spark's start is what takes time


@dataclass(frozen=True, slots=True)
class Measured:
    """The commands that run, and the folder of their results."""

    commands: dict[str, Process]
    results: Path

    def record(self, name: str) -> Record:
        """Wait for a command, and return what it has put down."""
        command = self.commands[name]
        assert command.wait(480) == 0, command.last_words()
        return next(record for record in read(self.results) if record.command == name)


@contextmanager
def measuring(folder: Path, runs: Mapping[str, tuple[str, ...]]) -> Iterator[Measured]:
    """Start the commands of bench/ that `runs` names, with its words and a single run each."""
    results = folder / "results"
    with Processes(folder) as processes:
        commands = {
            name: processes.start(
                name,
                [
                    *(sys.executable, "-m", f"bench.{name}", "--runs", "1"),
                    *(() if name in _WITHOUT_US else ("--system", "logship")),
                    *(*words, "--results", results),
                ],
            )
            for name, words in runs.items()
        }
        yield Measured(commands, results)
