"""Small disks of our own, one for each machine: a tmpfs that can be filled, freed, and made read-only."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Disk"]


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of its own at `path`; only within mounts of the caller's own (`tests.chaos.apart`)."""

    name: str
    path: Path

    @classmethod
    def mounted(cls, name: str, path: Path, megabytes: int) -> "Disk":
        """Make the folder and mount an empty disk there."""
        path.mkdir(parents=True)
        options = f"size={megabytes}m,mode=0755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
        return cls(name, path)
