"""The bare loop over nats-py as a system: a plain nats-server, and one process at each end."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.field.bare import READY
from bench.field.system import LOOPBACK, Guarantees
from broker.provision.apply import apply
from broker.topology import Topology
from nats_logship.wire.streams import MAX_PAYLOAD
from nats_logship.wire.subjects import Subject
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import ask, start_nats_server

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
        server, url = _start_server(folder, processes, address)
        output = folder / "out"
        output.mkdir()
        receiver = _start(processes, "receive", url, output)
        wait_until("it receives", lambda: receiver.last_output() == READY, 30, [receiver])
        centre = {"broker": server, "receiver": receiver}
        return _Staged(processes, url, output, centre)


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


def _start(processes: Processes, end: str, *arguments: str | Path) -> Process:
    return processes.start(end, [sys.executable, "-m", "bench.field.bare", end, *arguments])


def _start_server(folder: Path, processes: Processes, address: str) -> tuple[Process, str]:
    """Start a nats-server with our stream that syncs every message; return it and its address."""
    home, port = folder / "nats-server", free_port()
    home.mkdir()
    conf = home / "server.conf"
    conf.write_text(
        f'listen: "{address}:{port}"\n'
        f"max_payload: {MAX_PAYLOAD}\n"
        f'jetstream {{ store_dir: "{home}/store", sync_interval: "always" }}\n',
        "utf-8",
    )
    server = start_nats_server(processes, "nats-server", conf)
    url = f"nats://{address}:{port}"
    topology = Topology(partitions=1, max_bytes=shutil.disk_usage(folder).free // 2)
    ask(url, lambda connection: apply(connection, topology))
    return server, url
