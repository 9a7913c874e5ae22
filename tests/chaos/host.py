"""A host: an application that writes logs and rotates them, and the shipper that follows them."""

from dataclasses import dataclass
from pathlib import Path

from bench.traffic import Traffic
from tests.chaos.program import Program

__all__ = ["Host"]


@dataclass(slots=True)
class Host:
    """One host; `logs` is the folder of its log files, `state` that of its shipper, `machine` where it runs."""

    name: str
    machine: str
    logs: Path
    state: Path
    traffic: Traffic
    shipper: Program | None = None

    def start_writing(self) -> None:
        """Begin to write."""
        self.traffic.__enter__()

    def stop_writing(self) -> None:
        """Stop at the end of a line, in every file."""
        self.traffic.stop()

    def written(self) -> int:
        """Return how many bytes of whole lines were written so far, over all files and rotations."""
        return sum(map(len, self.traffic.written.values()))

    def sources(self) -> list[bytes]:
        """Return what was written to each log, in order, over all of its rotations."""
        return list(self.traffic.written.values())
