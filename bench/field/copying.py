"""The machine's own floor: `cp` of a host's file to its received file, and a sync of the copy."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.field.system import LOOPBACK, Guarantees
from tests.support.processes import Process, Processes

_KEPT = Guarantees(acked=False, fsynced=True, ordered=True, survives_kill=False)


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy of one file within the machine, which nobody receives."""

    name: str = "cp"
    guarantees: Guarantees = _KEPT
    follows: bool = False

    def missing(self) -> str:
        """Nothing is: every machine copies."""
        return ""

    def version(self) -> str:
        """Return nothing: a copy is a copy."""
        return ""

    def stage(self, folder: Path, processes: Processes, address: str = LOOPBACK) -> "_Staged":
        """Make the output folder; there is nothing to start."""
        output = folder / "out"
        output.mkdir()
        return _Staged(processes, output, folder / "synced", {})


@dataclass(frozen=True, slots=True)
class _Staged:
    processes: Processes
    output: Path
    synced: Path
    centre: Mapping[str, Process]

    def start_agent(self, host: str, logs: Path) -> Process:
        """Copy, sync, and stay, so that what the copy has cost can still be asked."""
        (source,) = logs.glob("*.log")
        source_name, target, synced = (
            shlex.quote(str(path)) for path in (source, self.output / f"{host}.log", self.synced)
        )
        script = f"cp {source_name} {target} && sync {target} && touch {synced} && exec sleep 3600"
        return self.processes.start("cp", ["sh", "-c", script])

    def is_committed(self) -> bool:
        return self.synced.exists()
