"""The bare loop over nats-py as a system: a nats-server without any of our programs, and one process at each end."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.contenders import bare
from bench.field.bare import READY
from bench.field.system import LOOPBACK, Guarantees
from bench.processes import Process, Processes, wait_until
from broker.wire.subjects import Subject

__all__ = ["Loop"]

_KEPT = Guarantees(acked=True, fsynced=True, ordered=True, survives_kill=False)


@dataclass(frozen=True, slots=True)
class Loop:
    """Acknowledged and synced as ours, and nothing besides."""

    name: str = "nats-py"
    guarantees: Guarantees = _KEPT
    follows: bool = True

    def missing(self) -> str:
        """Nothing is: nats-py and nats-server come with us."""
        return ""

    def version(self) -> str:
        """Return nats-py's."""
        return version("nats-py")

    def stage(self, folder: Path, processes: Processes, address: str = LOOPBACK) -> "_Staged":
        """Start a nats-server that syncs always, and the receiving end."""
        most = shutil.disk_usage(folder).free // 2
        server = bare("nats-server", folder, processes, most, address=address)
        output = folder / "out"
        output.mkdir()
        receiver = _start(processes, "receive", server.url, output)
        wait_until("it receives", lambda: receiver.last_words() == READY, 30, [receiver])
        centre = {"broker": server.process, "receiver": receiver}
        return _Staged(processes, server.url, output, centre)


@dataclass(frozen=True, slots=True)
class _Staged:
    processes: Processes
    url: str
    output: Path
    centre: Mapping[str, Process]

    def start_agent(self, host: str, logs: Path) -> Process:
        subject = str(Subject.for_host(host, 1))
        return _start(self.processes, "publish", self.url, subject, logs)

    def is_committed(self) -> bool:
        return True  # it keeps no record of what was received but the file


def _start(processes: Processes, end: str, *words: str | Path) -> Process:
    return processes.start(end, [sys.executable, "-m", "bench.field.bare", end, *words])
