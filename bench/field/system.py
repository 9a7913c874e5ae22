"""What is measured: a system that carries lines of a host's files to one file per host.

Knows no system in particular. A system is started in an empty folder: its centre first, and when
that is ready, an agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.processes import Process, Processes

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a system promises in the setting that is measured.

    `acked`: an agent forgets a line only when the far side says that it has it. `fsynced`: what is
    received is synced to disk, before it is acknowledged where it is. `ordered`: a file's lines
    stay in order. `survives_kill`: no line is lost or repeated when a program at either end is
    killed.
    """

    acked: bool
    fsynced: bool
    ordered: bool
    survives_kill: bool

    def __str__(self) -> str:
        promises = {
            "acked": self.acked,
            "fsynced": self.fsynced,
            "ordered": self.ordered,
            "survives kill -9": self.survives_kill,
        }
        return ", ".join(word for word, holds in promises.items() if holds) or "nothing"


class Staged(Protocol):
    """A system whose centre runs; `output` is the folder in which it writes `<host>.log`."""

    @property
    def output(self) -> Path:
        """Where received lines are."""

    @property
    def centre(self) -> Mapping[str, Process]:
        """The programs at the centre by what they are: "broker", "receiver"."""

    def start_agent(self, host: str, logs: Path) -> Process:
        """Start what follows all `*.log` in a folder; does not wait."""

    def is_committed(self) -> bool:
        """Whether the output has all lines that were sent, and they are committed."""


class System(Protocol):
    """One contender."""

    @property
    def name(self) -> str:
        """What tables call it, and who chooses it."""

    @property
    def guarantees(self) -> Guarantees:
        """What it promises."""

    @property
    def follows(self) -> bool:
        """Whether an agent goes on with a file that grows."""

    def missing(self) -> str:
        """Say why it cannot be measured on this machine; empty where it can."""

    def version(self) -> str:
        """Return its version; only where nothing is missing."""

    def stage(self, folder: Path, processes: Processes, address: str = LOOPBACK) -> Staged:
        """Start its centre in an empty folder, at that address; return when it is warm."""
