"""A host: applications that write logs and rotate them, and the shipper that follows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.logfile import Generation
from tests.chaos.program import Program
from tests.chaos.writing import Writing

__all__ = ["Host"]


@dataclass(slots=True)
class Host:
    """One host; `logs` is the folder of its log files, `machine` where it runs."""

    name: str
    machine: str
    logs: Path
    writing: Writing
    shipper: Program | None = None

    def start_writing(self) -> None:
        """Begin to write."""
        self.writing.start()

    def stop_writing(self) -> None:
        """Stop at the end of a line, in every file."""
        self.writing.stop()

    def written(self) -> int:
        """Return how many bytes of whole lines were written so far, over all files and rotations."""
        return sum(log.whole for log in self.writing.logs)

    def sources(self) -> list[bytes]:
        """Return what was written to each log, in order, over all of its rotations."""
        return [log.content() for log in self.writing.logs]

    def generations(self) -> Mapping[Path, Sequence[Generation]]:
        """Return for each log the files that it was written to, one after the other, in the order of `sources`."""
        return {log.path: tuple(log.generations) for log in self.writing.logs}
